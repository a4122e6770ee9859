#include "ops/lora.h"

#include "autograd/grad.h"
#include "ops/arithmetic.h"
#include "ops/empty.h"
#include "ops/linear.h"

namespace flux2 {

namespace {

Tensor equation(const Tensor& x, const Tensor& w, const Tensor& bias, const std::vector<Lora>& changes) {
  Tensor y = linear(x, w, bias);
  for (const Lora& c : changes) y = y + c.scale * linear(linear(x, c.down), c.up);
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  if (factor == 1.0) return x;
  x.device().kernels().scale({x, x, factor, 0.0});
  return x;
}

Tensor in_dtype(DType dtype, const Tensor& values, const Tensor& rounded) {
  return rounded.defined() && rounded.dtype() == dtype ? rounded : values.detached().cast(dtype);
}

// What the gradient of one change needs, in the dtype of the activations.
struct Kept {
  Tensor down, up;
  Tensor inner;  // scale · x · downᵀ [M, r]; for the gradient of up
  double scale;
  DType down_dtype, up_dtype;
};

// dU = scale · dY · up;  d(down) = dUᵀ · X,  d(up) = dYᵀ · U. Returns dU, undefined if nobody needs it.
Tensor add_gradients(const Kept& c, size_t input, const Tensor& d, const Tensor& x, GradSink& sink) {
  const Kernels& kernels = d.device().kernels();
  const bool wants_up = sink.wants(input + 1), wants_du = sink.wants(input) || sink.wants(0);
  const Tensor dup = wants_up ? Tensor::like(d, c.up_dtype, c.up.shape()) : Tensor();
  const Tensor du = wants_du ? Tensor::like(d, {d.dim(0), c.up.dim(1)}) : Tensor();
  if (wants_up && wants_du && kernels.adapter_grad) {  // dY is large, and these read it once
    kernels.adapter_grad({d, c.inner, c.up, du, dup, c.scale});
  } else {
    if (wants_up) kernels.linear_grad_weight({d, c.inner, dup});
    if (wants_du) kernels.linear_grad_input({d, c.up, du});
    if (wants_du) scaled(du, c.scale);
  }
  if (wants_up) sink.add(input + 1, dup);
  if (sink.wants(input)) {
    const Tensor ddown = Tensor::like(d, c.down_dtype, c.down.shape());
    kernels.linear_grad_weight({du, x, ddown});
    sink.add(input, ddown);
  }
  return du;
}

}  // namespace

Tensor lora_linear(const Tensor& x, const Tensor& w, const Tensor& bias, const std::vector<Lora>& changes, Values values) {
  const Kernels& kernels = x.device().kernels();
  if (changes.empty()) return linear(x, w, bias, values);
  if (!kernels.product_add || wants_grad(w, bias)) return equation(x, w, bias, changes);
  require(w.rank() == 2 && x.dim(-1) == w.dim(1), "lora: input {} for a weight of shape {}", x.shape(), w.shape());

  // The layer's own product adds to that of its adapters: the reading of what is there hides behind its arithmetic. The other way
  // round, the adapters would read and write the whole result a second time. A product with a bias cannot add, and that of one
  // row reads weights as they are stored only if it does not.
  const bool one_row = x.numel() == x.dim(-1) && w.dtype() != x.dtype();
  const bool needed = values == Values::Needed, adapters_first = !bias.defined() && !one_row;
  Tensor y = adapters_first || !needed ? Tensor::like(x, x.shape().with(-1, w.dim(0))) : linear(x.detached(), w, bias);
  if (y.numel() == 0) return y;
  const Tensor flat = matrix_rows(x.detached()), out = y.reshaped({flat.dim(0), w.dim(0)});
  bool is_written = !adapters_first;  // `out` holds a result to add to
  std::vector<Tensor> inputs = {x};
  std::vector<Kept> kept;
  bool trained = false;
  for (const Lora& c : changes) {
    const int64_t rank = c.down.dim(0);
    require(c.down.shape() == Shape{rank, w.dim(1)} && c.up.shape() == Shape{w.dim(0), rank},
            "lora: {} and {} for a weight of shape {}", c.down.shape(), c.up.shape(), w.shape());
    const Tensor down = in_dtype(x.dtype(), c.down, c.rounded_down), up = in_dtype(x.dtype(), c.up, c.rounded_up);
    require_terms("lora", rank, out.shape());
    const bool trains_up = wants_grad(c.up);
    Tensor inner;
    if (needed || trains_up) {
      inner = Tensor::like(x, {flat.dim(0), rank});
      kernels.linear({flat, down, nullptr, inner});
      scaled(inner, c.scale);
    }
    if (!needed) {
      // nothing is added to a result that nobody reads
    } else if (is_written) {
      kernels.product_add({inner, up, out, 1.0, true});
    } else {
      kernels.linear({inner, up, nullptr, out});
      is_written = true;
    }
    kept.push_back({down, up, trains_up ? inner : Tensor(), c.scale, c.down.dtype(), c.up.dtype()});
    inputs.push_back(c.down);
    inputs.push_back(c.up);
    trained = trained || wants_grad(c.down);
  }
  if (needed && adapters_first) kernels.product_add({flat, w, out, 1.0, true});
  return record_many("lora_linear", {std::move(y)}, std::move(inputs),
                     [kept = std::move(kept), w = w.detached(), flat = trained ? flat : Tensor(), shape = x.shape()](
                         std::span<const Tensor> dy, GradSink& sink) {
                       const Tensor d = matrix_rows(dy[0]);
                       const Kernels& table = d.device().kernels();
                       const auto memory = [&] {
                         const Tensor part = sink.memory_for(0, d, shape);
                         const Shape rows{d.dim(0), w.dim(1)};
                         return part.can_reshape(rows) ? part.reshaped(rows) : Tensor::like(d, rows);
                       };
                       Tensor dx;
                       for (size_t i = 0; i < kept.size(); ++i) {
                         const Tensor du = add_gradients(kept[i], 1 + 2 * i, d, flat, sink);
                         if (!sink.wants(0)) continue;
                         if (dx.defined()) {
                           table.product_add({du, kept[i].down, dx, 1.0, false});
                         } else {
                           dx = memory();
                           table.linear_grad_input({du, kept[i].down, dx});
                         }
                       }
                       if (!dx.defined()) return;
                       table.product_add({d, w, dx, 1.0, false});
                       sink.add(0, dx.reshaped(shape));
                     })[0];
}

}  // namespace flux2
