#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

// Where a run over a block of K stands among those that share a tile.
struct Pass {
  bool first;  // start from zero instead of what the tile holds
  bool last;   // leave the tile row-major; until then its order is the kernel's own
};

// The inner product of one instruction set: tile[mr, nr] += a[mr, k] · b[nr, k]ᵀ with f32 sums, for inputs of type T
// (float or bf16) that were interleaved into panels. Each element of the tile is summed over k in one order that
// depends on k alone, so a result does not change with the place of its row among others.
//
// The files that fill this in are compiled for their instruction set. They define nothing but these functions and
// call no inline function of a shared header, which the linker might keep for machines that lack the instructions.
template <class T>
struct MicroKernel {
  const char* name;
  int mr, nr;  // at most kMaxTileRows each way
  int kr;      // a panel holds a multiple of kr steps of k, padded with zeros

  // Interleaves k elements of each of mr (nr) rows into a panel.
  void (*pack_a)(int64_t k, const T* const* rows, T* panel);
  void (*pack_b)(int64_t k, const T* const* rows, T* panel);
  // k is a multiple of kr; tile is mr · nr consecutive floats.
  void (*run)(int64_t k, const T* a, const T* b, float* tile, Pass pass);
};

constexpr int kMaxTileRows = 32;

}  // namespace flux2::gemm
