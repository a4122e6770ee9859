#pragma once

#include <cstdint>

#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/row_source.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace flux2::gemm {

// Where a product lands: y[m, n] = Σ_k a[m, k] · b[n, k] + bias[n], stored as F32, BF16 or F16.
struct Output {
  void* data;
  DType dtype;
  int64_t row_stride;         // in elements
  const float* bias = nullptr;
};

struct Extents {
  int64_t m, n, k;
};

// What a product runs on: threads, and a stream whose pool lends the packing buffers.
struct Workers {
  ThreadPool& threads;
  Stream& stream;
};

// The product of two sources. The rows of a are packed a chunk at a time, all of K, and shared by the threads; the
// threads then take strips of b, which each packs for itself one block of K at a time (so that stored weights are
// read, converted and packed once per chunk of rows) and multiplies with every row of its part of the chunk.
//
// How K is cut depends on K alone and the order inside a block on the micro-kernel alone: a row's result is the same
// bits whatever the other rows, the number of rows or the number of threads.
template <class T>
void multiply(const MicroKernel<T>& kernel, const RowSource<T>& a, const RowSource<T>& b, Extents extents,
              const Output& output, const Workers& workers);

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// What packing a panel works with: room for its rows, and a row of zeros for those past the end of the source.
template <class T>
struct PackScratch {
  T* rows;
  const T* zeros;
};

// Packs rows [r, r + count) of a source over [k, k + n) into one panel of `width` rows.
template <class T>
void pack_panel(const RowSource<T>& source, void (*pack)(int64_t, const T* const*, T*), int width, int64_t r, int64_t count,
                int64_t k, int64_t n, PackScratch<T> scratch, T* panel);

}  // namespace flux2::gemm
