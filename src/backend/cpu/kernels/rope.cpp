#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

void rope(const RopeArgs& a) {
  const int64_t length = a.x.dim(1), heads = a.x.dim(2), width = a.x.dim(3), half = width / 2;
  const int64_t tokens = a.x.dim(0) * length;
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const auto rotate = a.interleaved ? math.rotate_neighbours : math.rotate_halves;
    parallel_rows(cpu_stream(a.y), tokens, heads * width, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x), cosines(a.cosine), sines(a.sine);
      Writer<C> ys(a.y);
      std::vector<C> sine(static_cast<size_t>(half));
      for (int64_t token = begin; token < end; ++token) {
        const int64_t b = token / length, s = token % length;
        const C* cosine = cosines(s * a.cosine.stride(0), half);
        math.scale(sines(s * a.sine.stride(0), half), sine.data(), a.inverse ? C(-1) : C(1), C(0), half);
        for (int64_t h = 0; h < heads; ++h) {
          const C* x = xs(b * a.x.stride(0) + s * a.x.stride(1) + h * a.x.stride(2), width);
          C* y = ys.begin(b * a.y.stride(0) + s * a.y.stride(1) + h * a.y.stride(2), width);
          rotate(x, cosine, sine.data(), y, width);
          ys.end();
        }
      }
    });
  });
}

}  // namespace flux2::cpu
