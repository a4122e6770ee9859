#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

// The axes of x that are summed, the others at extent 1.
Shape summed_shape(const Tensor& x, const Tensor& y) {
  Shape s = x.shape();
  for (int axis = 0; axis < s.rank(); ++axis)
    if (y.dim(axis) != 1) s[axis] = 1;
  return s;
}

}  // namespace

// Memory is read in order: along rows when the last axis is summed, else for neighbouring outputs side by side.
// Each output is added up in f64 in row-major order of the summed axes, from pieces where rows are summed.
void sum(const SumArgs& a) {
  Walk<2> kept(a.y.shape(), {a.y.strides(), a.x.strides()});
  const auto kept_inner = kept.split_innermost();
  const int64_t width = kept_inner.first, y_step = kept_inner.second[0], x_step = kept_inner.second[1];
  Walk<1> summed(summed_shape(a.x, a.y), {a.x.strides()});
  const auto summed_inner = summed.split_innermost();
  const int64_t run = summed_inner.first, run_step = summed_inner.second[0];

  constexpr int64_t kSideBySide = 64, kPiece = 1024;
  const int64_t side = run_step == 1 ? 1 : std::clamp<int64_t>(width, 1, kSideBySide);
  const int64_t pieces = (width + side - 1) / side;
  const int64_t terms = summed.count() * run;
  with_compute_type(a.x.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.y), kept.count() * pieces, terms * side, [&](int64_t begin, int64_t end) {
      Reader<C> along(a.x, run_step), across(a.x, x_step);
      double totals[kSideBySide];
      for (int64_t piece = begin; piece < end; ++piece) {
        const auto [y_base, x_base] = kept.at(piece / pieces);
        const int64_t start = piece % pieces * side, n = std::min(side, width - start);
        std::fill_n(totals, n, 0.0);
        for (int64_t s = 0; s < summed.count(); ++s) {
          const int64_t from = x_base + start * x_step + summed.at(s)[0];
          if (side == 1) {
            for (int64_t r = 0; r < run; r += kPiece) {
              const int64_t length = std::min(kPiece, run - r);
              const C* x = along(from + r * run_step, length);
              totals[0] += math.sum(x, length);
            }
          } else {
            for (int64_t r = 0; r < run; ++r) {
              const C* x = across(from + r * run_step, n);
              for (int64_t i = 0; i < n; ++i) totals[i] += x[i];
            }
          }
        }
        store(a.y.dtype(), totals, element(a.y, y_base + start * y_step), y_step, n);
      }
    });
  });
}

}  // namespace flux2::cpu
