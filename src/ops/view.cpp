#include "ops/view.h"

#include <array>
#include <span>

#include "autograd/grad.h"

namespace flux2 {

Tensor reshape(const Tensor& x, const Shape& shape) {
  return record("reshape", x.reshaped(shape), {x}, [from = x.shape()](const Tensor& dy, GradSink& sink) {
    sink.add(0, dy.contiguous().reshaped(from));
  });
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

std::vector<Tensor> split_sizes(const Tensor& x, std::vector<int64_t> sizes, int axis) {
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (int64_t size : sizes) {
    parts.push_back(x.narrowed(axis, start, size));
    start += size;
  }
  check(start == x.dim(axis), "split: pieces add up to {}, the axis has {}", start, x.dim(axis));
  return record_many("split", std::move(parts), {x},
                     [from = x.shape(), sizes = std::move(sizes), axis](std::span<const Tensor> dy, GradSink& sink) {
                       const Tensor* any = nullptr;
                       for (const Tensor& d : dy)
                         if (d.defined()) any = &d;
                       Tensor dx = Tensor::like(*any, from);
                       int64_t at = 0;
                       for (size_t i = 0; i < sizes.size(); ++i) {
                         const Tensor slot = dx.narrowed(axis, at, sizes[i]);
                         if (dy[i].defined()) slot.copy_from(dy[i]);
                         else slot.fill(0.0);
                         at += sizes[i];
                       }
                       sink.add(0, dx);
                     });
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, std::initializer_list<int64_t> sizes, int axis) { return split_sizes(x, sizes, axis); }

std::vector<Tensor> chunk(const Tensor& x, int parts, int axis) {
  check(parts > 0 && x.dim(axis) % parts == 0, "chunk: {} does not divide into {} parts", x.dim(axis), parts);
  return split_sizes(x, std::vector<int64_t>(static_cast<size_t>(parts), x.dim(axis) / parts), axis);
}

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty(), "concat of nothing");
  Shape shape = parts[0].shape();
  axis = shape.axis_of(axis);
  int64_t total = 0;
  for (const Tensor& p : parts) {
    check(p.rank() == shape.rank() && p.shape().with(axis, 0) == shape.with(axis, 0) && p.dtype() == parts[0].dtype(),
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
