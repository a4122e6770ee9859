#include "ops/activation.h"

#include "autograd/grad.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

namespace {

Tensor apply(const char* name, Unary op, const Tensor& x) {
  Tensor y = Tensor::like(x);
  if (x.numel() > 0) x.device().kernels().unary({op, x, y});
  return record(name, std::move(y), {x}, [op, x = x.detached()](const Tensor& dy, GradSink& sink) {
    Tensor dx = Tensor::like(x);
    if (x.numel() > 0) x.device().kernels().unary_grad({op, x, dy, dx});
    sink.add(0, dx);
  });
}

}  // namespace

Tensor silu(const Tensor& x) { return apply("silu", Unary::Silu, x); }
Tensor exp(const Tensor& x) { return apply("exp", Unary::Exp, x); }
Tensor abs(const Tensor& x) { return apply("abs", Unary::Abs, x); }
Tensor square(const Tensor& x) { return apply("square", Unary::Square, x); }

// Φ(−z) = exp(−z²/2) / √(2π) · ∫ exp(−t²/2 − zt) dt over t ≥ 0. Seven nodes of the Gauss rule for the weight exp(−t²/2) give it
// with an error of 1e-8. All terms are positive, so that nothing cancels in F32, and the ops of every device are enough.
Tensor gelu(const Tensor& x) {
  struct Node {
    double t, weight;  // the weight divided by √(2π)
  };
  constexpr Node kNodes[] = {{0.0901087167, 0.0906144694}, {0.449991469, 0.172822445}, {1.02417203, 0.155449543},
                             {1.75084674, 0.0680582984},   {2.60007154, 0.0123513999}, {3.58006488, 0.000697590365},
                             {4.77078784, 6.25356626e-06}};
  const DType dtype = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Tensor wide = cast(x, dtype), z = abs(wide), exponent = -0.5 * square(wide);
  Tensor tail;
  for (const Node& node : kNodes) {
    const Tensor term = node.weight * exp(exponent + -node.t * z);
    tail = tail.defined() ? tail + term : term;
  }
  return cast(0.5 * (wide + z) - z * tail, x.dtype());  // x Φ(x) = max(x, 0) − z Φ(−z)
}

Tensor swiglu(const Tensor& gate, const Tensor& up, std::optional<DType> as) {
  require(gate.shape() == up.shape() && gate.dtype() == up.dtype(), "swiglu: gate {} and up {}", gate.shape(), up.shape());
  if (as && *as != gate.dtype() && !wants_grad(gate, up)) {
    const Tensor rows = matrix_rows(gate), y = result_like(gate, *as, gate.shape());
    if (y.numel() > 0) y.device().kernels().quantise_swiglu({nullptr, rows, matrix_rows(up), y.reshaped(rows.shape())});
    return y;
  }
  Tensor y = Tensor::like(gate);
  if (y.numel() > 0) gate.device().kernels().swiglu({gate, up, y});
  return record("swiglu", std::move(y), {gate, up},
                [gate = gate.detached(), up = up.detached()](const Tensor& dy, GradSink& sink) {
                  const Tensor dgate = sink.memory_for(0, gate, gate.shape()), dup = sink.memory_for(1, up, up.shape());
                  if (dy.numel() > 0) gate.device().kernels().swiglu_grad({gate, up, dy, dgate, dup});
                  sink.add(0, dgate);
                  sink.add(1, dup);
                });
}

Tensor swiglu(const Tensor& gate_up, std::optional<DType> as) {
  require(gate_up.dim(-1) % 2 == 0, "swiglu: odd width {}", gate_up.dim(-1));
  const int64_t half = gate_up.dim(-1) / 2;
  const auto parts = split(gate_up, {half, half});
  return swiglu(parts[0], parts[1], as);
}

}  // namespace flux2
