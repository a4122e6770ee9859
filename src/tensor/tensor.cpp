#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/system_memory.h"

namespace flux2 {

namespace {

// A block-typed tensor is a plain matrix of blocks; its rows cannot be cut inside a block.
int64_t byte_offset(DType dtype, int64_t elements) { return bytes_for(dtype, elements); }

}  // namespace

Tensor Tensor::empty(Stream& stream, DType dtype, const Shape& shape) {
  for (int64_t d : shape) require(d >= 0, "negative extent in shape {}", shape);
  Tensor t;
  const auto bytes = static_cast<size_t>(bytes_for(dtype, shape.numel()));
  auto memory = stream.allocate(bytes);
  t.data_ = memory.get();
  t.buffer_ = std::make_shared<Buffer>(memory.get(), bytes, memory);
  t.stream_ = stream.shared_from_this();
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.strides_ = shape.strides();
  return t;
}

Tensor Tensor::like(const Tensor& x, DType dtype, const Shape& shape) { return empty(x.stream(), dtype, shape); }

Tensor Tensor::on_host(const void* data, DType dtype, const Shape& shape, std::shared_ptr<const void> owner) {
  Tensor t;
  t.data_ = const_cast<void*>(data);
  t.buffer_ = std::make_shared<Buffer>(t.data_, static_cast<size_t>(bytes_for(dtype, shape.numel())), std::move(owner));
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.strides_ = shape.strides();
  return t;
}

Tensor Tensor::host_empty(DType dtype, const Shape& shape) {
  const auto memory = system_memory(static_cast<size_t>(bytes_for(dtype, shape.numel())));
  return on_host(memory.get(), dtype, shape, memory);
}

Tensor Tensor::host_copy(const void* data, DType dtype, const Shape& shape) {
  Tensor t = host_empty(dtype, shape);
  if (t.bytes() > 0) std::memcpy(t.raw(), data, static_cast<size_t>(t.bytes()));  // data may be null where there is none
  return t;
}

bool Tensor::is_contiguous() const {
  if (numel() == 0) return true;  // there is nothing to be in order, and any view of it is possible
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

Stream& Tensor::stream() const {
  if (!stream_) fail(ErrorCode::Internal, "a tensor of shape {} has no stream", shape_);
  return *stream_;
}

Tensor Tensor::narrowed(int axis, int64_t start, int64_t length) const {
  axis = shape_.axis_of(axis);
  require(start >= 0 && length >= 0 && start + length <= shape_[axis], "slice {}+{} of axis {} in shape {}", start, length, axis,
          shape_);
  Tensor t = detached();
  t.shape_[axis] = length;
  t.data_ = static_cast<std::byte*>(data_) + byte_offset(dtype_, start * strides_[axis]);
  if (scales_ && axis < rank() - 1 && scales_->numel() > 1)
    t.scales_ = std::make_shared<const Tensor>(scales_->narrowed(axis, start, length));
  return t;
}

namespace {

// The strides under which memory laid out as (shape, strides) is seen as `wanted`; none when it cannot be.
std::optional<Shape> strides_for(const Shape& shape, const Shape& strides, const Shape& wanted) {
  // Walk both shapes from the end; each new axis must lie inside a run of old axes that is contiguous in memory.
  Shape result = wanted;
  int old = shape.rank() - 1;
  int64_t available = 1, step = 0;  // elements left in the current run, stride of its next axis
  for (int i = wanted.rank() - 1; i >= 0; --i) {
    if (wanted[i] == 1) {
      result[i] = 1;
      continue;
    }
    if (available == 1) {
      while (old >= 0 && shape[old] == 1) --old;
      step = strides[old];
      available = shape[old--];
      while (old >= 0 && (shape[old] == 1 || strides[old] == step * available)) available *= shape[old--];
    }
    if (available % wanted[i] != 0) return {};
    result[i] = step;
    step *= wanted[i];
    available /= wanted[i];
  }
  return result;
}

}  // namespace

Tensor Tensor::reshaped(const Shape& shape) const {
  require(shape.numel() == numel(), "cannot reshape {} to {}", shape_, shape);
  const bool same_rows = shape.rank() > 0 && rank() > 0 && shape[-1] == shape_[-1];
  if (!same_rows) check_unscaled("reshape");
  Tensor t = detached();
  if (scales_ && scales_->numel() > 1)
    t.scales_ = std::make_shared<const Tensor>(scales_->reshaped(shape.first(shape.rank() - 1)));
  t.shape_ = shape;
  if (is_contiguous()) {
    t.strides_ = shape.strides();
    return t;
  }
  const auto strides = strides_for(shape_, strides_, shape);
  require(strides.has_value(), "cannot view strided {} as {}", shape_, shape);
  t.strides_ = *strides;
  return t;
}

bool Tensor::can_reshape(const Shape& shape) const {
  return shape.numel() == numel() && (is_contiguous() || strides_for(shape_, strides_, shape).has_value());
}

Tensor Tensor::permuted(std::span<const int> axes) const {
  require(static_cast<int>(axes.size()) == rank(), "permutation of {} axes for shape {}", axes.size(), shape_);
  check_unscaled("permute");
  Tensor t = detached();
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int from = shape_.axis_of(axes[static_cast<size_t>(i)]);
    seen |= 1u << from;
    t.shape_[i] = shape_[from];
    t.strides_[i] = strides_[from];
  }
  require(seen == (1u << rank()) - 1, "a permutation names every axis once");
  return t;
}

Tensor Tensor::expanded(const Shape& shape) const {
  require(broadcast_shape(shape_, shape) == shape, "cannot broadcast {} to {}", shape_, shape);
  check_unscaled("broadcast");
  Tensor t = detached();
  t.shape_ = shape;
  t.strides_ = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const int from = i - (shape.rank() - rank());
    t.strides_[i] = from < 0 || shape_[from] != shape[i] ? 0 : strides_[from];
  }
  return t;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : cloned(); }

Tensor Tensor::cast(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor t = like(*this, dtype, shape_);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::cloned() const {
  Tensor t = like(*this);
  t.copy_from(with_scales({}));
  return t.with_scales(scales());
}

const Tensor& Tensor::scales() const {
  static const Tensor kNone;
  return scales_ ? *scales_ : kNone;
}

Tensor Tensor::with_scales(const Tensor& scales) const {
  require(
      !scales.defined() || (scales.dtype() == DType::F32 && (scales.numel() == 1 || scales.shape() == shape_.first(rank() - 1))),
      "scales {} {} for a tensor of shape {}", name_of(scales.dtype()), scales.shape(), shape_);
  Tensor t = *this;
  t.scales_ = scales.defined() ? std::make_shared<const Tensor>(scales) : nullptr;
  return t;
}

void Tensor::check_unscaled(const char* view) const {
  if (scales_) fail(ErrorCode::Internal, "cannot {} a tensor of shape {} that has scales", view, shape_);
}

Tensor Tensor::to(Stream& target) const {
  if (stream_.get() == &target) return *this;
  if (scales_) return with_scales({}).to(target).with_scales(scales_->to(target));
  const bool from_host = !stream_ || stream_->device().is_host();
  const bool same_device = stream_ && &stream_->device() == &target.device();
  if (same_device || (from_host && target.device().is_host())) {  // the same memory seen from another stream
    if (stream_) stream_->wait();
    Tensor t = detached();
    t.stream_ = target.shared_from_this();
    return t;
  }
  const Tensor source = contiguous();
  Tensor t = empty(target, dtype_, shape_);
  if (from_host) {
    if (stream_) stream_->wait();
    target.upload(t.raw(), source.raw(), static_cast<size_t>(source.bytes()));
  } else if (target.device().is_host()) {
    stream_->download(t.raw(), source.raw(), static_cast<size_t>(source.bytes()));
  } else {
    std::vector<std::byte> staging(static_cast<size_t>(source.bytes()));
    stream_->download(staging.data(), source.raw(), staging.size());
    target.upload(t.raw(), staging.data(), staging.size());
  }
  return t;
}

void Tensor::copy_from(const Tensor& source) const {
  require(source.shape() == shape_, "copy of {} into {}", source.shape(), shape_);
  if (numel() == 0) return;
  if (source.scales_ && dtype_ != DType::F32)
    return copy_from(source.to(stream()).cast(DType::F32));  // factors keep their precision
  device().kernels().copy({source, *this});
  if (!source.scales_) return;
  const Tensor factors = source.scales_->to(stream()).reshaped(source.scales_->numel() == 1 ? Shape{1} : shape_.with(-1, 1));
  device().kernels().binary({Binary::Mul, *this, factors.expanded(shape_), *this});
}

void Tensor::fill(double value) const {
  if (numel() > 0) device().kernels().fill({*this, value});
}

namespace {

// Reads contiguous host values of any plain dtype.
template <class T>
std::vector<T> convert(const std::byte* bytes, DType dtype, size_t n) {
  std::vector<T> out(n);
  const auto each = [&]<class S>(auto&& value) {
    for (size_t i = 0; i < n; ++i) {
      S s;
      std::memcpy(&s, bytes + i * sizeof(S), sizeof(S));
      out[i] = static_cast<T>(value(s));
    }
  };
  const auto same = [](auto v) { return v; };
  switch (dtype) {
    case DType::F32: each.template operator()<float>(same); break;
    case DType::F64: each.template operator()<double>(same); break;
    case DType::F16: each.template operator()<f16>([](f16 v) { return to_float(v); }); break;
    case DType::BF16: each.template operator()<bf16>([](bf16 v) { return to_float(v); }); break;
    case DType::I8: each.template operator()<int8_t>(same); break;
    case DType::U8:
    case DType::Bool: each.template operator()<uint8_t>(same); break;
    case DType::I16: each.template operator()<int16_t>(same); break;
    case DType::U16: each.template operator()<uint16_t>(same); break;
    case DType::I32: each.template operator()<int32_t>(same); break;
    case DType::U32: each.template operator()<uint32_t>(same); break;
    case DType::I64: each.template operator()<int64_t>(same); break;
    case DType::U64: each.template operator()<uint64_t>(same); break;
    case DType::F8_E4M3: each.template operator()<uint8_t>(e4m3_to_float); break;
    case DType::F8_E5M2: each.template operator()<uint8_t>(e5m2_to_float); break;
    default: fail(ErrorCode::InvalidArgument, "{} values cannot be listed", name_of(dtype));
  }
  return out;
}

template <class T>
std::vector<T> values_of(const Tensor& t) {
  if (t.on_host_only()) {
    require(t.is_contiguous(), "a strided view without a stream cannot be listed");
    return convert<T>(t.data<std::byte>(), t.dtype(), static_cast<size_t>(t.numel()));
  }
  const Tensor c = t.contiguous();
  if (std::is_same_v<T, float> && c.dtype() == DType::F32) {  // pictures: no second copy
    std::vector<T> values(static_cast<size_t>(c.numel()));
    c.stream().download(values.data(), c.raw(), static_cast<size_t>(c.bytes()));
    return values;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(c.bytes()));
  c.stream().download(bytes.data(), c.raw(), bytes.size());
  return convert<T>(bytes.data(), c.dtype(), static_cast<size_t>(c.numel()));
}

}  // namespace

std::vector<float> Tensor::to_floats() const { return values_of<float>(*this); }
std::vector<double> Tensor::to_doubles() const { return values_of<double>(*this); }
std::vector<int32_t> Tensor::to_ints() const { return values_of<int32_t>(*this); }

Tensor Tensor::with_grad(GradEdge edge) const {
  Tensor t = *this;
  t.grad_ = std::move(edge);
  return t;
}

Stream& stream_of(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (!t->on_host_only()) return t->stream();
  fail(ErrorCode::Internal, "none of the operands has a stream");
}

}  // namespace flux2
