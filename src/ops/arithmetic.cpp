#include "ops/arithmetic.h"

#include "autograd/grad.h"

namespace flux2 {

namespace {

const char* name_of(Binary op) { return op == Binary::Add ? "add" : op == Binary::Sub ? "subtract" : "multiply"; }

Tensor compute(Binary op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), "{}: {} and {} operands", name_of(op), flux2::name_of(a.dtype()), flux2::name_of(b.dtype()));
  const Shape shape = broadcast_shape(a.shape(), b.shape());
  Stream& stream = stream_of({&a, &b});
  Tensor y = Tensor::empty(stream, a.dtype(), shape);
  if (y.numel() > 0) stream.device().kernels().binary({op, a.expanded(shape), b.expanded(shape), y});
  return y;
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) {
  return record("add", compute(Binary::Add, a, b), {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy, GradSink& sink) {
    if (sink.wants(0)) sink.add(0, sum_to(dy, sa));
    if (sink.wants(1)) sink.add(1, sum_to(dy, sb));
  });
}

Tensor operator-(const Tensor& a, const Tensor& b) {
  return record("subtract", compute(Binary::Sub, a, b), {a, b},
                [sa = a.shape(), sb = b.shape()](const Tensor& dy, GradSink& sink) {
                  if (sink.wants(0)) sink.add(0, sum_to(dy, sa));
                  if (sink.wants(1)) sink.add(1, -1.0 * sum_to(dy, sb));
                });
}

Tensor operator*(const Tensor& a, const Tensor& b) {
  // Each factor is kept for the other's gradient only.
  return record("multiply", compute(Binary::Mul, a, b), {a, b},
                [kept_a = wants_grad(b) ? a.detached() : Tensor(), kept_b = wants_grad(a) ? b.detached() : Tensor(),
                 sa = a.shape(), sb = b.shape()](const Tensor& dy, GradSink& sink) {
                  if (sink.wants(0)) sink.add(0, sum_to(compute(Binary::Mul, dy, kept_b), sa));
                  if (sink.wants(1)) sink.add(1, sum_to(compute(Binary::Mul, dy, kept_a), sb));
                });
}

Tensor affine(const Tensor& x, double factor, double offset) {
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().scale({x, y, factor, offset});
  return record("affine", std::move(y), {x},
                [factor](const Tensor& dy, GradSink& sink) { sink.add(0, affine(dy, factor, 0.0)); });
}

Tensor operator*(double factor, const Tensor& x) { return affine(x, factor, 0.0); }
Tensor operator+(double offset, const Tensor& x) { return affine(x, 1.0, offset); }

Tensor gated_add(const Tensor& x, const Tensor& gate, const Tensor& z, Values values) {
  auto* fused = x.device().kernels().gated_add;
  if (!fused) return x + gate * z;
  require(x.shape() == z.shape() && x.rank() == 3 && gate.shape() == x.shape().with(1, 1), "gated_add: {} + {} · {}", x.shape(),
          gate.shape(), z.shape());
  Tensor y = Tensor::like(x);
  if (y.numel() > 0 && values == Values::Needed) fused({x, gate, z, y});
  return record("gated_add", std::move(y), {x, gate, z},
                [gate = gate.detached(), kept_z = wants_grad(gate) ? z.detached() : Tensor()](const Tensor& dy, GradSink& sink) {
                  sink.add(0, dy);
                  if (auto* fused_grad = dy.device().kernels().modulation_grad; fused_grad && sink.wants(1)) {
                    const Tensor dgate = Tensor::like(dy, gate.shape());
                    fused_grad({dy, kept_z, nullptr, dgate, false, 0});
                    sink.add(1, dgate);
                  } else if (sink.wants(1)) {
                    sink.add(1, sum_of_products(dy, kept_z, gate.shape()));
                  }
                  if (sink.wants(2)) sink.add(2, compute(Binary::Mul, dy, gate));
                });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  require(broadcast_shape(shape, x.shape()) == x.shape(), "sum_to: {} is not a broadcast of {}", x.shape(), shape);
  Shape aligned = x.shape();  // `shape` with ones in front
  for (int i = 0; i < x.rank(); ++i) {
    const int from = i - (x.rank() - shape.rank());
    aligned[i] = from < 0 ? 1 : shape[from];
  }
  Tensor y = Tensor::like(x, aligned);
  if (x.numel() > 0) x.device().kernels().sum({x.detached(), y});
  else y.fill(0.0);
  return record("sum", y.reshaped(shape), {x}, [from = x.shape(), aligned](const Tensor& dy, GradSink& sink) {
    sink.add(0, dy.reshaped(aligned).expanded(from).contiguous());
  });
}

Tensor widened(const Tensor& x) {
  const bool narrow = x.dtype() == DType::BF16 || x.dtype() == DType::F16;
  return narrow ? x.detached().cast(DType::F32) : x.detached();
}

Tensor sum_of_products(const Tensor& a, const Tensor& b, const Shape& shape) {
  return sum_to(compute(Binary::Mul, widened(a), widened(b)), shape).cast(a.dtype());
}

Tensor sum(const Tensor& x) { return sum_to(x, Shape{}); }

Tensor mean(const Tensor& x) {
  require(x.numel() > 0, "mean of an empty tensor");
  return (1.0 / static_cast<double>(x.numel())) * sum(x);
}

}  // namespace flux2
