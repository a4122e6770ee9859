#include <cstring>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

int64_t pixel(const Tensor& t, int64_t b, int64_t i, int64_t j) { return b * t.stride(0) + i * t.stride(1) + j * t.stride(2); }

}  // namespace

void upsample(const UpsampleArgs& a) {
  const int64_t height = a.y.dim(1), width = a.y.dim(2);
  const auto bytes = static_cast<size_t>(bytes_for(a.x.dtype(), a.x.dim(3)));
  parallel_rows(cpu_stream(a.y), a.y.dim(0) * height, width * a.x.dim(3), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / height, i = row % height;
      for (int64_t j = 0; j < width; ++j)
        std::memcpy(element(a.y, pixel(a.y, b, i, j)), element(a.x, pixel(a.x, b, i / 2, j / 2)), bytes);
    }
  });
}

void upsample_grad(const UpsampleGradArgs& a) {
  const int64_t height = a.dx.dim(1), width = a.dx.dim(2), channels = a.dx.dim(3);
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dx).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.dx), a.dx.dim(0) * height, width * channels, [&](int64_t begin, int64_t end) {
      Reader<C> dys(a.dy);
      Writer<C> dxs(a.dx);
      std::vector<C> total(static_cast<size_t>(channels));
      for (int64_t row = begin; row < end; ++row) {
        const int64_t b = row / height, i = row % height;
        for (int64_t j = 0; j < width; ++j) {
          std::fill(total.begin(), total.end(), C(0));
          for (int64_t copy = 0; copy < 4; ++copy) {
            const C* dy = dys(pixel(a.dy, b, 2 * i + copy / 2, 2 * j + copy % 2), channels);
            math.add(total.data(), dy, total.data(), channels);
          }
          std::copy(total.begin(), total.end(), dxs.begin(pixel(a.dx, b, i, j), channels));
          dxs.end();
        }
      }
    });
  });
}

}  // namespace flux2::cpu
