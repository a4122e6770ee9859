#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace flux2 {

// A block of memory and the owner that keeps it alive: a stream's pool, a mapped file, a vector.
class Buffer {
 public:
  Buffer(void* data, size_t bytes, std::shared_ptr<const void> owner) : data_(data), bytes_(bytes), owner_(std::move(owner)) {}

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;
};

struct GradNode;  // autograd/grad.h

// Identifies a tensor as an output of a recorded op. Empty for tensors that need no gradient.
struct GradEdge {
  std::shared_ptr<GradNode> node;
  int output = 0;
};

// A value: shared memory, dtype, shape, strides and the stream it is computed on. Copying copies a handle. Row-major, last axis
// innermost. Weights read from a file have no stream: they are in host memory and can be combined with any tensor of a host
// device; `to` copies them elsewhere.
class Tensor {
 public:
  Tensor() = default;  // undefined: stands for "none"

  static Tensor empty(Stream& stream, DType dtype, const Shape& shape);
  static Tensor like(const Tensor& x) { return like(x, x.dtype(), x.shape()); }
  static Tensor like(const Tensor& x, const Shape& shape) { return like(x, x.dtype(), shape); }
  static Tensor like(const Tensor& x, DType dtype, const Shape& shape);
  // Host memory owned by `owner`; `data` must be aligned for the dtype.
  static Tensor on_host(const void* data, DType dtype, const Shape& shape, std::shared_ptr<const void> owner);
  static Tensor host_empty(DType dtype, const Shape& shape);  // its own memory, returned to the system when it is destroyed
  static Tensor host_copy(const void* data, DType dtype, const Shape& shape);
  template <class T>
  static Tensor from(Stream& stream, DType dtype, const Shape& shape, std::span<const T> values);

  bool defined() const { return buffer_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int rank() const { return shape_.rank(); }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return bytes_for(dtype_, numel()); }
  bool is_contiguous() const;
  bool on_host_only() const { return stream_ == nullptr; }

  Stream& stream() const;  // an Internal error for tensors read from a file
  Device& device() const { return stream().device(); }

  // The first element. On a GPU this is a device address. Memory is shared, so const Tensors give mutable bytes.
  void* raw() const { return data_; }
  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }

  // Views of the same memory, without gradient; the ops of the same names record one.
  Tensor narrowed(int axis, int64_t start, int64_t length) const;
  Tensor reshaped(const Shape& shape) const;   // contiguous axes can be merged, any axis split
  bool can_reshape(const Shape& shape) const;  // whether that is a view, of the same number of elements
  Tensor permuted(std::span<const int> axes) const;
  Tensor expanded(const Shape& shape) const;  // broadcast, stride 0

  Tensor contiguous() const;        // itself when it already is
  Tensor cast(DType dtype) const;   // itself when it already has it; always contiguous otherwise
  Tensor to(Stream& stream) const;  // a copy on that stream; itself when nothing has to move
  Tensor cloned() const;
  void copy_from(const Tensor& source) const;  // same shape; converts dtype; both on one device
  void fill(double value) const;

  // Contiguous host values, converted. Waits for the stream.
  std::vector<float> to_floats() const;
  std::vector<double> to_doubles() const;
  std::vector<int32_t> to_ints() const;

  // The scales of quantised values [..., K]: F32, either [1] for the whole tensor or one per row, with the tensor's shape without
  // its last axis. Undefined if the values have no scales. Views keep their scales if their rows are rows of this tensor or parts
  // of them; other views of a scaled tensor are not possible.
  const Tensor& scales() const;
  Tensor with_scales(const Tensor& scales) const;

  const GradEdge& grad() const { return grad_; }
  Tensor with_grad(GradEdge edge) const;
  Tensor detached() const { return with_grad({}); }

 private:
  void check_unscaled(const char* view) const;

  std::shared_ptr<const Buffer> buffer_;
  std::shared_ptr<Stream> stream_;
  void* data_ = nullptr;
  DType dtype_ = DType::F32;
  Shape shape_, strides_;
  std::shared_ptr<const Tensor> scales_;
  GradEdge grad_;
};

// The stream on which an op over these tensors runs: that of the first one that has a stream.
Stream& stream_of(std::initializer_list<const Tensor*> tensors);

template <class T>
Tensor Tensor::from(Stream& stream, DType dtype, const Shape& shape, std::span<const T> values) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int32_t>);
  require(static_cast<int64_t>(values.size()) == shape.numel(), "{} values for a tensor of shape {}", values.size(), shape);
  constexpr DType stored = std::is_same_v<T, float> ? DType::F32 : std::is_same_v<T, double> ? DType::F64 : DType::I32;
  Tensor t = empty(stream, stored, shape);
  stream.upload(t.raw(), values.data(), values.size_bytes());
  return t.cast(dtype);
}

}  // namespace flux2
