#include "ops/view.h"

#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "autograd/grad.h"

namespace flux2 {

Tensor reshape(const Tensor& x, const Shape& shape) {
  Tensor y = record("reshape", x.reshaped(shape), {x}, [from = x.shape()](const Tensor& dy, GradSink& sink) {
    sink.add(0, (dy.can_reshape(from) ? dy : dy.contiguous()).reshaped(from));
  });
  // The memory for the gradient of x also serves y's where it can be viewed in y's shape.
  if (wants_grad(x) && x.grad().node->output_memory)
    y.grad().node->output_memory = [shape](const GradNode& node, int, const Tensor& like) {
      const GradEdge& from = node.inputs[0];
      const Tensor part = from.node->output_memory(*from.node, from.output, like);
      return part.defined() && part.can_reshape(shape) ? part.reshaped(shape) : Tensor();
    };
  return y;
}

Tensor permute(const Tensor& x, std::initializer_list<int> axes) {
  const std::span<const int> order(axes.begin(), axes.size());
  std::array<int, Shape::kMaxRank> inverse{};
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(x.shape().axis_of(order[i]))] = static_cast<int>(i);
  return record("permute", x.permuted(order), {x}, [inverse, rank = order.size()](const Tensor& dy, GradSink& sink) {
    sink.add(0, dy.permuted(std::span(inverse.data(), rank)).contiguous());
  });
}

Tensor narrow(const Tensor& x, int axis, int64_t start, int64_t length) {
  return record("narrow", x.narrowed(axis, start, length), {x},
                [from = x.shape(), axis, start, length](const Tensor& dy, GradSink& sink) {
                  Tensor dx = Tensor::like(dy, from);
                  dx.fill(0.0);
                  dx.narrowed(axis, start, length).copy_from(dy);
                  sink.add(0, dx);
                });
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  return record("contiguous", x.cloned(), {x}, [](const Tensor& dy, GradSink& sink) { sink.add(0, dy); });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return record("cast", x.cast(dtype), {x}, [from = x.dtype()](const Tensor& dy, GradSink& sink) { sink.add(0, dy.cast(from)); });
}

namespace {

// The gradient of a tensor that was split into pieces. The gradient of a piece can be written directly into its part.
struct JointGradient {
  Tensor whole;
  std::vector<bool> given;
};

// Of one shape. The stride of an axis of one element means nothing.
bool is_same_view(const Tensor& a, const Tensor& b) {
  bool same = a.raw() == b.raw();
  for (int axis = 0; axis < a.rank(); ++axis) same = same && (a.dim(axis) == 1 || a.stride(axis) == b.stride(axis));
  return same;
}

std::vector<Tensor> split_sizes(const Tensor& x, std::vector<int64_t> sizes, int axis) {
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (int64_t size : sizes) {
    parts.push_back(x.narrowed(axis, start, size));
    start += size;
  }
  require(start == x.dim(axis), "split: pieces add up to {}, the axis has {}", start, x.dim(axis));
  if (!wants_grad(x)) return parts;
  const auto joint = std::make_shared<JointGradient>();
  joint->given.resize(sizes.size());
  const auto backward = [from = x.shape(), sizes, axis, joint](std::span<const Tensor> dy, GradSink& sink) {
    const Tensor* any = nullptr;
    for (const Tensor& d : dy)
      if (d.defined()) any = &d;
    Tensor dx = std::exchange(joint->whole, {});
    joint->given.assign(sizes.size(), false);
    if (!dx.defined()) dx = sink.memory_for(0, *any, from);
    int64_t at = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor slot = dx.narrowed(axis, at, sizes[i]);
      if (!dy[i].defined()) slot.fill(0.0);
      else if (!is_same_view(slot, dy[i])) slot.copy_from(dy[i]);
      at += sizes[i];
    }
    sink.add(0, dx);
  };
  parts = record_many("split", std::move(parts), {x}, backward);
  parts[0].grad().node->output_memory = [from = x.shape(), sizes, axis, joint](const GradNode& node, int output,
                                                                               const Tensor& like) {
    const auto piece = static_cast<size_t>(output);
    if (joint->given[piece]) return Tensor();
    joint->given[piece] = true;
    if (!joint->whole.defined()) joint->whole = gradient_memory(node.inputs[0], like, from);
    return joint->whole.narrowed(axis, std::accumulate(sizes.begin(), sizes.begin() + output, int64_t{0}), sizes[piece]);
  };
  return parts;
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, std::initializer_list<int64_t> sizes, int axis) { return split_sizes(x, sizes, axis); }

std::vector<Tensor> chunk(const Tensor& x, int parts, int axis) {
  require(parts > 0 && x.dim(axis) % parts == 0, "chunk: {} does not divide into {} parts", x.dim(axis), parts);
  return split_sizes(x, std::vector<int64_t>(static_cast<size_t>(parts), x.dim(axis) / parts), axis);
}

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  require(!parts.empty(), "concat of nothing");
  Shape shape = parts[0].shape();
  axis = shape.axis_of(axis);
  int64_t total = 0;
  for (const Tensor& p : parts) {
    require(p.rank() == shape.rank() && p.shape().with(axis, 0) == shape.with(axis, 0) && p.dtype() == parts[0].dtype(),
            "concat: {} beside {}", p.shape(), shape);
    total += p.dim(axis);
  }
  Tensor y = Tensor::like(parts[0], shape.with(axis, total));
  std::vector<int64_t> sizes;
  int64_t at = 0;
  for (const Tensor& p : parts) {
    y.narrowed(axis, at, p.dim(axis)).copy_from(p);
    sizes.push_back(p.dim(axis));
    at += p.dim(axis);
  }
  return record_many("concat", {std::move(y)}, parts, [axis, sizes](std::span<const Tensor> dy, GradSink& sink) {
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sink.wants(i)) sink.add(i, dy[0].narrowed(axis, start, sizes[i]));
      start += sizes[i];
    }
  })[0];
}

}  // namespace flux2
