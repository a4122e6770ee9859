#pragma once

#include <array>
#include <cstdint>

#include "tensor/shape.h"

namespace flux2::cuda {

// The index space that N tensors of one shape share, with as few axes as their strides allow.
template <int N>
struct Layout {
  int rank;       // at least 1
  int64_t count;  // of elements, or of vectors after `in_vectors`
  int64_t shape[Shape::kMaxRank];
  int64_t stride[N][Shape::kMaxRank];  // in elements

  // The address of element i of the space in each tensor, relative to its start.
  __device__ void offsets(int64_t i, int64_t (&offset)[N]) const {
    for (int n = 0; n < N; ++n) offset[n] = 0;
    if (count <= INT32_MAX) {
      auto rest = static_cast<uint32_t>(i);
      for (int axis = rank - 1; axis > 0; --axis) {
        const auto extent = static_cast<uint32_t>(shape[axis]);
        const uint32_t outer = rest / extent;
        for (int n = 0; n < N; ++n) offset[n] += static_cast<int64_t>(rest - outer * extent) * stride[n][axis];
        rest = outer;
      }
      for (int n = 0; n < N; ++n) offset[n] += static_cast<int64_t>(rest) * stride[n][0];
    } else {
      for (int axis = rank - 1; axis > 0; --axis) {
        const int64_t outer = i / shape[axis];
        for (int n = 0; n < N; ++n) offset[n] += (i - outer * shape[axis]) * stride[n][axis];
        i = outer;
      }
      for (int n = 0; n < N; ++n) offset[n] += i * stride[n][0];
    }
  }

  // Whether the last axis can be walked V elements at a time by tensor n, whose start is `data`: its rows are contiguous and
  // begin on the boundaries of V elements of `bytes` each.
  bool walks(int n, const void* data, int v, size_t bytes) const {
    if (shape[rank - 1] % v != 0 || stride[n][rank - 1] != 1) return false;
    if (reinterpret_cast<uintptr_t>(data) % (bytes * static_cast<size_t>(v)) != 0) return false;
    for (int axis = 0; axis < rank - 1; ++axis)
      if (stride[n][axis] % v != 0) return false;
    return true;
  }

  // The same space counted in vectors of v along the last axis.
  Layout in_vectors(int v) const {
    Layout result = *this;
    result.count /= v;
    result.shape[rank - 1] /= v;
    for (int n = 0; n < N; ++n) result.stride[n][rank - 1] *= v;
    return result;
  }
};

// Drops axes of extent 1 and joins neighbours that every tensor walks in one go.
template <int N>
Layout<N> layout_of(const Shape& shape, const std::array<Shape, N>& strides) {
  Layout<N> out{};
  out.count = shape.numel();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    bool joins = out.rank > 0;
    for (int n = 0; n < N && joins; ++n)
      joins = out.stride[n][out.rank - 1] == strides[static_cast<size_t>(n)][axis] * shape[axis];
    if (!joins) out.shape[out.rank++] = 1;
    out.shape[out.rank - 1] *= shape[axis];
    for (int n = 0; n < N; ++n) out.stride[n][out.rank - 1] = strides[static_cast<size_t>(n)][axis];
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.shape[0] = 1;
    for (int n = 0; n < N; ++n) out.stride[n][0] = 1;
  }
  return out;
}

}  // namespace flux2::cuda
