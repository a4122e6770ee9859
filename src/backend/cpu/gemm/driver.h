#pragma once

#include <cstdint>

#include "backend/cpu/gemm/output.h"
#include "backend/cpu/gemm/panels.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace flux2::gemm {

struct Extents {
  int64_t m, n, k;
};

// What a product runs on: threads, and a stream whose pool lends the packing buffers.
struct Workers {
  ThreadPool& threads;
  Stream& stream;
};

// The product of two operands. The rows of a are packed a chunk at a time, all of K, and shared by the threads; the
// threads then take strips of b, which each packs for itself one block of K at a time (so that stored weights are
// read, converted and packed once per chunk of rows) and multiplies with every row of its part of the chunk.
//
// How K is cut depends on K alone and the order inside a block on the micro-kernel alone: a row's result is the same
// bits whatever the other rows, the number of rows or the number of threads.
void multiply(const TileKernel& kernel, const PanelSource& a, const PanelSource& b, Extents extents, const Output& output,
              const Workers& workers);

template <class T>
void multiply(const MicroKernel<T>& kernel, const RowSource<T>& a, const RowSource<T>& b, Extents extents, const Output& output,
              const Workers& workers) {
  multiply(kernel, RowPanels<T>(a, kernel.pack_a, kernel.mr), RowPanels<T>(b, kernel.pack_b, kernel.nr), extents, output,
           workers);
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

}  // namespace flux2::gemm
