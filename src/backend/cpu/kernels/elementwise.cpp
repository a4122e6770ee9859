#include <cmath>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

// d silu(x) / dx = s · (1 + x · (1 − s)) with s the logistic function of x.
template <class C>
C silu_slope(C x) {
  const C s = C(1) / (C(1) + std::exp(-x));
  return s * (C(1) + x * (C(1) - s));
}

template <class C>
C slope(Unary op, C x) {
  switch (op) {
    case Unary::Silu: return silu_slope(x);
    case Unary::Exp: return std::exp(x);
    case Unary::Abs: return x > 0 ? C(1) : x < 0 ? C(-1) : C(0);
    case Unary::Square: return 2 * x;
  }
  return 0;
}

template <class C>
void apply(Unary op, const RowMath<C>& math, const C* x, C* y, int64_t n) {
  switch (op) {
    case Unary::Silu: return math.silu(x, y, n);
    case Unary::Exp: return math.exp(x, y, n);
    case Unary::Square: return math.mul(x, x, y, n);
    case Unary::Abs:
      for (int64_t i = 0; i < n; ++i) y[i] = std::abs(x[i]);
  }
}

}  // namespace

void unary(const UnaryArgs& a) {
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    for_pieces<C>(
        a.y, [&](int64_t n, const auto& in, C* y) { apply(a.op, math, in[0], y, n); }, a.x);
  });
}

void unary_grad(const UnaryGradArgs& a) {
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const auto body = [&](int64_t n, const auto& in, C* dx) {
      for (int64_t i = 0; i < n; ++i) dx[i] = in[1][i] * slope(a.op, in[0][i]);
    };
    for_pieces<C>(a.dx, body, a.x, a.dy);
  });
}

void binary(const BinaryArgs& a) {
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const auto f = a.op == Binary::Add ? math.add : a.op == Binary::Sub ? math.sub : math.mul;
    for_pieces<C>(
        a.y, [&](int64_t n, const auto& in, C* y) { f(in[0], in[1], y, n); }, a.a, a.b);
  });
}

void scale(const ScaleArgs& a) {
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const auto factor = static_cast<C>(a.factor), offset = static_cast<C>(a.offset);
    for_pieces<C>(
        a.y, [&](int64_t n, const auto& in, C* y) { math.scale(in[0], y, factor, offset, n); }, a.x);
  });
}

void swiglu(const SwigluArgs& a) {
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    for_pieces<C>(
        a.y, [&](int64_t n, const auto& in, C* y) { math.swiglu(in[0], in[1], y, n); }, a.gate, a.up);
  });
}

void swiglu_grad(const SwigluGradArgs& a) {
  with_compute_type(a.dup.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dup).cpu().row_math<C>();
    const auto gate_part = [&](int64_t n, const auto& in, C* dgate) {
      for (int64_t i = 0; i < n; ++i) dgate[i] = in[2][i] * in[1][i] * silu_slope(in[0][i]);
    };
    for_pieces<C>(a.dgate, gate_part, a.gate, a.up, a.dy);
    for_pieces<C>(
        a.dup, [&](int64_t n, const auto& in, C* dup) { math.swiglu(in[0], in[1], dup, n); }, a.gate, a.dy);
  });
}

void gated_add(const GatedAddArgs& a) {
  const Tensor gate = a.gate.expanded(a.y.shape());
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const auto body = [&](int64_t n, const auto& in, C* y) { math.affine(in[2], in[1], in[0], y, n); };
    for_pieces<C>(a.y, body, a.x, gate, a.z);
  });
}

}  // namespace flux2::cpu
