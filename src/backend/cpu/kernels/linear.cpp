#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

// Every kernel here reads a row of the weight once, as C, and uses it for a block of rows of x, so that quantised
// weights are unpacked seldom. Each sum runs over its whole inner axis in one order.
namespace {

constexpr int64_t kRowBlock = 32;

int64_t blocks_of(int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// Rows [begin, end) of a matrix as contiguous C.
template <class C>
std::vector<C> rows_as(const Tensor& t, int64_t begin, int64_t end) {
  const int64_t n = t.dim(1);
  std::vector<C> values(static_cast<size_t>((end - begin) * n));
  for (int64_t r = begin; r < end; ++r) load(t.dtype(), element(t, r * t.stride(0)), 1, n, values.data() + (r - begin) * n);
  return values;
}

// The factors of a weight's rows, one for each.
template <class C>
std::vector<C> scales_of(const Tensor& w) {
  const auto n = static_cast<size_t>(w.dim(0));
  if (!w.scales().defined()) return std::vector<C>(n, C{1});
  const std::vector<C> scales = values_of<C>(w.scales());
  return scales.size() == n ? scales : std::vector<C>(n, scales[0]);
}

}  // namespace

void linear(const LinearArgs& a) {
  const int64_t m = a.x.dim(0), k = a.x.dim(1), n = a.w.dim(0);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const std::vector<C> bias = a.bias ? values_of<C>(*a.bias) : std::vector<C>(static_cast<size_t>(n));
    const std::vector<C> scales = scales_of<C>(a.w);
    for (int64_t block = 0; block < blocks_of(m); ++block) {
      const int64_t first = block * kRowBlock, count = std::min(kRowBlock, m - first);
      const std::vector<C> x = rows_as<C>(a.x, first, first + count);
      parallel_rows(cpu_stream(a.y), n, k * count, [&](int64_t begin, int64_t end) {
        Reader<C> ws(a.w);
        for (int64_t j = begin; j < end; ++j) {
          const C* w = ws(j * a.w.stride(0), k);
          for (int64_t i = 0; i < count; ++i) {
            const C y = math.dot(x.data() + i * k, w, k) * scales[static_cast<size_t>(j)] + bias[static_cast<size_t>(j)];
            store(a.y.dtype(), &y, element(a.y, (first + i) * a.y.stride(0) + j), 1, 1);
          }
        }
      });
    }
  });
}

void linear_grad_input(const LinearGradInputArgs& a) {
  const int64_t m = a.dy.dim(0), n = a.w.dim(0), k = a.w.dim(1);
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dx).cpu().row_math<C>();
    const std::vector<C> scales = scales_of<C>(a.w);
    cpu_stream(a.dx).pool().parallel_for(blocks_of(m), [&](int64_t block) {
      const int64_t first = block * kRowBlock, count = std::min(kRowBlock, m - first);
      const std::vector<C> dy = rows_as<C>(a.dy, first, first + count);
      std::vector<C> dx(static_cast<size_t>(count * k));
      Reader<C> ws(a.w);
      for (int64_t j = 0; j < n; ++j) {
        const C* w = ws(j * a.w.stride(0), k);
        for (int64_t i = 0; i < count; ++i)
          math.axpy(dy[static_cast<size_t>(i * n + j)] * scales[static_cast<size_t>(j)], w, dx.data() + i * k, k);
      }
      for (int64_t i = 0; i < count; ++i)
        store(a.dx.dtype(), dx.data() + i * k, element(a.dx, (first + i) * a.dx.stride(0)), 1, k);
    });
  });
}

void linear_grad_weight(const LinearGradWeightArgs& a) {
  const int64_t m = a.dy.dim(0), n = a.dw.dim(0), k = a.dw.dim(1);
  with_compute_type(a.dy.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dw).cpu().row_math<C>();
    cpu_stream(a.dw).pool().parallel_for(blocks_of(n), [&](int64_t block) {
      const int64_t first = block * kRowBlock, count = std::min(kRowBlock, n - first);
      std::vector<C> dw(static_cast<size_t>(count * k));
      Reader<C> xs(a.x), dys(a.dy);
      for (int64_t i = 0; i < m; ++i) {
        const C *x = xs(i * a.x.stride(0), k), *dy = dys(i * a.dy.stride(0) + first, count);
        for (int64_t j = 0; j < count; ++j) math.axpy(dy[j], x, dw.data() + j * k, k);
      }
      for (int64_t j = 0; j < count; ++j)
        store(a.dw.dtype(), dw.data() + j * k, element(a.dw, (first + j) * a.dw.stride(0)), 1, k);
    });
  });
}

}  // namespace flux2::cpu
