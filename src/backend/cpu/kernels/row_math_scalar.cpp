#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/row_math.h"

namespace flux2::cpu {

namespace {

template <class C>
C silu(C x) {
  return x / (C(1) + std::exp(-x));
}

template <class C, class Term>
C lane_sum(int64_t n, const Term& term) {
  constexpr int kLanes = 16;
  C lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  for (int j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

}  // namespace

template <class C>
RowMath<C> scalar_row_math() {
  RowMath<C> m;
  m.silu = [](const C* x, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = silu(x[i]);
  };
  m.exp = [](const C* x, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i]);
  };
  m.add = [](const C* a, const C* b, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  };
  m.sub = [](const C* a, const C* b, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] - b[i];
  };
  m.mul = [](const C* a, const C* b, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
  };
  m.scale = [](const C* x, C* y, C factor, C offset, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i] + offset;
  };
  m.affine = [](const C* x, const C* a, const C* b, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] * x[i] + b[i];
  };
  m.affine_silu = [](const C* x, const C* a, const C* b, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = silu(a[i] * x[i] + b[i]);
  };
  m.axpy = [](C a, const C* x, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
  };
  m.swiglu = [](const C* gate, const C* up, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = silu(gate[i]) * up[i];
  };
  m.sum = [](const C* x, int64_t n) { return lane_sum<C>(n, [=](int64_t i) { return x[i]; }); };
  m.dot = [](const C* a, const C* b, int64_t n) { return lane_sum<C>(n, [=](int64_t i) { return a[i] * b[i]; }); };
  m.max = [](const C* x, int64_t n) { return *std::max_element(x, x + n); };
  m.deviation = [](const C* x, C mean, int64_t n) {
    return lane_sum<C>(n, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  };
  m.exp_sum = [](const C* x, C shift, C* y, int64_t n) {
    return lane_sum<C>(n, [=](int64_t i) { return y[i] = std::exp(x[i] - shift); });
  };
  m.normalise = [](const C* x, C mean, C factor, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor;
  };
  m.modulate = [](const C* x, C mean, C factor, const C* shift, const C* scale, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = (C(1) + scale[i]) * ((x[i] - mean) * factor) + shift[i];
  };
  m.weigh = [](const C* x, C factor, const C* weight, C* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i];
  };
  m.add_deviation = [](const C* x, const C* mean, C* sum, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
  };
  m.rotate_neighbours = [](const C* x, const C* cosine, const C* sine, C* y, int64_t n) {
    for (int64_t i = 0; i < n / 2; ++i) {
      const C a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = cosine[i] * a - sine[i] * b;
      y[2 * i + 1] = sine[i] * a + cosine[i] * b;
    }
  };
  m.rotate_halves = [](const C* x, const C* cosine, const C* sine, C* y, int64_t n) {
    const int64_t half = n / 2;
    for (int64_t i = 0; i < half; ++i) {
      const C a = x[i], b = x[i + half];
      y[i] = cosine[i] * a - sine[i] * b;
      y[i + half] = sine[i] * a + cosine[i] * b;
    }
  };
  return m;
}

template RowMath<float> scalar_row_math<float>();
template RowMath<double> scalar_row_math<double>();

}  // namespace flux2::cpu
