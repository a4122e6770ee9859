#include <cmath>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

template <class C>
struct Moments {
  C mean, factor;  // factor = 1 / sqrt(variance + eps)
};

template <class C>
Moments<C> moments(const RowMath<C>& math, const C* x, int64_t n, float eps) {
  const C mean = math.sum(x, n) / static_cast<C>(n);
  const C variance = math.deviation(x, mean, n) / static_cast<C>(n);
  return {mean, C(1) / std::sqrt(variance + static_cast<C>(eps))};
}

template <class C>
C rms_factor(const RowMath<C>& math, const C* x, int64_t n, float eps) {
  return C(1) / std::sqrt(math.dot(x, x, n) / static_cast<C>(n) + static_cast<C>(eps));
}

}  // namespace

void layer_norm(const LayerNormArgs& a) {
  const int64_t n = a.x.dim(-1);
  const auto rows = rows_of(a.x, a.y);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.y), rows.count(), n, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x);
      Writer<C> ys(a.y);
      for (int64_t r = begin; r < end; ++r) {
        const auto [x_at, y_at] = rows.at(r);
        const C* x = xs(x_at, n);
        const auto [mean, factor] = moments(math, x, n, a.eps);
        math.normalise(x, mean, factor, ys.begin(y_at, n), n);
        ys.end();
      }
    });
  });
}

void modulated_norm(const ModulatedNormArgs& a) {
  const int64_t n = a.x.dim(-1);
  const Tensor shift = a.shift.expanded(a.x.shape()), scale = a.scale.expanded(a.x.shape());
  const auto rows = rows_of(a.x, a.y, shift, scale);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.y), rows.count(), n, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x), shifts(shift), scales(scale);
      Writer<C> ys(a.y);
      for (int64_t r = begin; r < end; ++r) {
        const auto [x_at, y_at, shift_at, scale_at] = rows.at(r);
        const C* x = xs(x_at, n);
        const auto [mean, factor] = moments(math, x, n, a.eps);
        math.modulate(x, mean, factor, shifts(shift_at, n), scales(scale_at, n), ys.begin(y_at, n), n);
        ys.end();
      }
    });
  });
}

// dx = factor · (dy − mean(dy) − x̂ · mean(dy · x̂))
void layer_norm_grad(const LayerNormGradArgs& a) {
  const int64_t n = a.x.dim(-1);
  const auto rows = rows_of(a.x, a.dy, a.dx);
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dx).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.dx), rows.count(), n, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x), dys(a.dy);
      Writer<C> dxs(a.dx);
      std::vector<C> normal(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        const auto [x_at, dy_at, dx_at] = rows.at(r);
        const C *x = xs(x_at, n), *dy = dys(dy_at, n);
        const auto [mean, factor] = moments(math, x, n, a.eps);
        math.normalise(x, mean, factor, normal.data(), n);
        const C mean_dy = math.sum(dy, n) / static_cast<C>(n);
        const C mean_product = math.dot(dy, normal.data(), n) / static_cast<C>(n);
        C* dx = dxs.begin(dx_at, n);
        for (int64_t i = 0; i < n; ++i) dx[i] = factor * (dy[i] - mean_dy - normal[i] * mean_product);
        dxs.end();
      }
    });
  });
}

void rms_norm(const RmsNormArgs& a) {
  const int64_t n = a.x.dim(-1);
  const auto rows = rows_of(a.x, a.y);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const std::vector<C> weight = values_of<C>(a.weight);
    parallel_rows(cpu_stream(a.y), rows.count(), n, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x);
      Writer<C> ys(a.y);
      for (int64_t r = begin; r < end; ++r) {
        const auto [x_at, y_at] = rows.at(r);
        const C* x = xs(x_at, n);
        math.weigh(x, rms_factor(math, x, n, a.eps), weight.data(), ys.begin(y_at, n), n);
        ys.end();
      }
    });
  });
}

// With x̂ = x · factor and g = weight · dy: dx = factor · (g − x̂ · mean(g · x̂)), dweight = Σ rows dy · x̂.
void rms_norm_grad(const RmsNormGradArgs& a) {
  const int64_t n = a.x.dim(-1);
  const Tensor& dx = a.dx ? *a.dx : a.x;  // x stands in where no dx is wanted, and is not written
  const auto rows = rows_of(a.x, a.dy, dx);
  // Partial sums of dweight over a fixed number of rows: the result does not depend on the number of threads.
  constexpr int64_t kRowsInPart = 256;
  const int64_t parts = (rows.count() + kRowsInPart - 1) / kRowsInPart;
  CpuStream& stream = cpu_stream(a.dx ? *a.dx : *a.dweight);
  with_compute_type(a.dy.dtype(), [&]<class C>() {
    const auto& math = stream.cpu().row_math<C>();
    const std::vector<C> weight = values_of<C>(a.weight);
    std::vector<C> sums(a.dweight ? static_cast<size_t>(parts * n) : 0);
    stream.pool().parallel_for(parts, [&](int64_t part) {
      Reader<C> xs(a.x), dys(a.dy);
      Writer<C> dxs(dx);
      std::vector<C> g(static_cast<size_t>(n));
      const int64_t end = std::min((part + 1) * kRowsInPart, rows.count());
      for (int64_t r = part * kRowsInPart; r < end; ++r) {
        const auto [x_at, dy_at, dx_at] = rows.at(r);
        const C *x = xs(x_at, n), *dy = dys(dy_at, n);
        const C factor = rms_factor(math, x, n, a.eps);
        if (a.dweight)
          for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(part * n + i)] += dy[i] * (x[i] * factor);
        if (!a.dx) continue;
        math.mul(weight.data(), dy, g.data(), n);
        const C mean_product = factor * math.dot(g.data(), x, n) / static_cast<C>(n);
        C* out = dxs.begin(dx_at, n);
        for (int64_t i = 0; i < n; ++i) out[i] = factor * (g[static_cast<size_t>(i)] - x[i] * factor * mean_product);
        dxs.end();
      }
    });
    if (!a.dweight) return;
    std::vector<double> total(static_cast<size_t>(n));
    for (int64_t i = 0; i < parts * n; ++i) total[static_cast<size_t>(i % n)] += sums[static_cast<size_t>(i)];
    store(a.dweight->dtype(), total.data(), a.dweight->raw(), 1, n);
  });
}

}  // namespace flux2::cpu
