#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/cpu_stream.h"
#include "backend/cpu/kernels/convert.h"

namespace flux2::cpu {

// Calls f.operator()<C>(), where C is the type in which kernels compute for activations of this dtype.
template <class F>
void with_compute_type(DType dtype, F&& f) {
  if (dtype == DType::F64) f.template operator()<double>();
  else f.template operator()<float>();
}

template <class C>
inline constexpr DType kStoredAs = DType::F32;
template <>
inline constexpr DType kStoredAs<double> = DType::F64;

inline std::byte* element(const Tensor& t, int64_t offset) {
  const DTypeInfo& d = info(t.dtype());
  return t.data<std::byte>() + offset / d.block_elements * d.block_bytes;
}

// Reads pieces of a tensor as values of C. If a piece is stored as contiguous C, it is not copied.
template <class C>
class Reader {
 public:
  explicit Reader(const Tensor& t, int64_t stride = 1) : tensor_(t), stride_(stride) {}

  // Returns n values, starting at `offset`. The pointer is valid until the next call.
  const C* operator()(int64_t offset, int64_t n) {
    const void* from = element(tensor_, offset);
    if (tensor_.dtype() == kStoredAs<C> && (stride_ == 1 || n == 1)) return static_cast<const C*>(from);
    if (static_cast<int64_t>(values_.size()) < n) values_.resize(static_cast<size_t>(n));
    load(tensor_.dtype(), from, stride_, n, values_.data());
    return values_.data();
  }

 private:
  const Tensor& tensor_;
  int64_t stride_;
  std::vector<C> values_;
};

// Writes pieces of a tensor from values of C. `begin` returns the memory for the values, `end` stores them in the tensor.
template <class C>
class Writer {
 public:
  explicit Writer(const Tensor& t, int64_t stride = 1) : tensor_(t), stride_(stride) {}

  C* begin(int64_t offset, int64_t n) {
    to_ = element(tensor_, offset);
    n_ = n;
    direct_ = tensor_.dtype() == kStoredAs<C> && (stride_ == 1 || n == 1);
    if (direct_) return static_cast<C*>(static_cast<void*>(to_));
    if (static_cast<int64_t>(values_.size()) < n) values_.resize(static_cast<size_t>(n));
    return values_.data();
  }
  void end() {
    if (!direct_) store(tensor_.dtype(), values_.data(), to_, stride_, n_);
  }

 private:
  const Tensor& tensor_;
  int64_t stride_;
  std::byte* to_ = nullptr;
  int64_t n_ = 0;
  bool direct_ = false;
  std::vector<C> values_;
};

// All values of a small contiguous parameter (a bias, the scales of a norm).
template <class C>
std::vector<C> values_of(const Tensor& t) {
  std::vector<C> values(static_cast<size_t>(t.numel()));
  load(t.dtype(), t.raw(), 1, t.numel(), values.data());
  return values;
}

// Visits the positions of N tensors in row-major order. The tensors have the same shape, and each has its own strides. Adjacent
// axes are merged if the strides of all tensors allow it, so contiguous tensors have one long axis.
template <size_t N>
class Walk {
 public:
  using Offsets = std::array<int64_t, N>;

  Walk(const Shape& shape, const std::array<Shape, N>& strides) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      Offsets step;
      for (size_t t = 0; t < N; ++t) step[t] = strides[t][axis];
      bool merges = rank_ > 0;
      for (size_t t = 0; merges && t < N; ++t) merges = steps_[rank_ - 1][t] == step[t] * shape[axis];
      if (!merges) extents_[rank_++] = 1;
      extents_[rank_ - 1] *= shape[axis];
      steps_[rank_ - 1] = step;
      count_ *= shape[axis];
    }
  }

  int64_t count() const { return count_; }

  // Removes the innermost axis from the walk and returns its extent and steps. The caller then loops over this axis.
  std::pair<int64_t, Offsets> split_innermost() {
    if (rank_ == 0) return {1, Offsets{}};
    --rank_;
    count_ = 1;
    for (size_t axis = 0; axis < rank_; ++axis) count_ *= extents_[axis];
    return {extents_[rank_], steps_[rank_]};
  }

  Offsets at(int64_t position) const {
    Offsets offsets{};
    for (size_t axis = rank_; axis-- > 0;) {
      const int64_t index = position % extents_[axis];
      position /= extents_[axis];
      for (size_t t = 0; t < N; ++t) offsets[t] += index * steps_[axis][t];
    }
    return offsets;
  }

 private:
  size_t rank_ = 0;
  int64_t count_ = 1;
  std::array<int64_t, Shape::kMaxRank> extents_{};
  std::array<Offsets, Shape::kMaxRank> steps_{};
};

template <size_t N>
Walk(const Shape&, const std::array<Shape, N>&) -> Walk<N>;

// The rows of tensors with the same shape: a walk over all axes except the last.
template <class... Tensors>
auto rows_of(const Tensor& first, const Tensors&... more) {
  constexpr size_t n = 1 + sizeof...(more);
  const int leading = first.rank() - 1;
  return Walk<n>(first.shape().first(leading), {first.strides().first(leading), more.strides().first(leading)...});
}

// Distributes `count` rows of `length` values over the threads and calls body(begin, end). Each piece is large enough to be worth
// waking a thread.
template <class F>
void parallel_rows(CpuStream& stream, int64_t count, int64_t length, F&& body) {
  constexpr int64_t kWorthAThread = 16384;
  stream.pool().parallel_ranges(count, std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(length, 1)), body);
}

// Calls body(n, inputs, output) for short contiguous pieces of C, where `inputs` is an array of pointers. All inputs have the
// shape of y and may have any strides. The result of an element must depend only on the inputs at the same position.
template <class C, class... Inputs, class F>
void for_pieces(const Tensor& y, F&& body, const Inputs&... inputs) {
  constexpr size_t kInputs = sizeof...(inputs);
  constexpr int64_t kPiece = 1024;  // input and output pieces stay in the first-level cache
  Walk<kInputs + 1> walk(y.shape(), {y.strides(), inputs.strides()...});
  const auto innermost = walk.split_innermost();  // clang 14 captures no parts of it by name
  const int64_t length = innermost.first;
  const auto& steps = innermost.second;
  const int64_t pieces = (length + kPiece - 1) / kPiece;
  parallel_rows(cpu_stream(y), walk.count() * pieces, std::min(length, kPiece), [&](int64_t begin, int64_t end) {
    size_t at = 1;
    std::array<Reader<C>, kInputs> readers{Reader<C>(inputs, steps[at++])...};
    Writer<C> writer(y, steps[0]);
    for (int64_t piece = begin; piece < end; ++piece) {
      auto offsets = walk.at(piece / pieces);
      const int64_t start = piece % pieces * kPiece, n = std::min(kPiece, length - start);
      std::array<const C*, kInputs> from;
      for (size_t i = 0; i < kInputs; ++i) from[i] = readers[i](offsets[i + 1] + start * steps[i + 1], n);
      C* to = writer.begin(offsets[0] + start * steps[0], n);
      body(n, from, to);
      writer.end();
    }
  });
}

}  // namespace flux2::cpu
