#pragma once

#include <cstdint>

namespace flux2::cpu {

// Arithmetic on contiguous rows of n values of C (float or double). This is the only part of these kernels that differs between
// instruction sets. The kernels that call it handle shapes, strides, dtypes and threads, and exist only once. The scalar table is
// complete. Each SIMD level replaces the functions that it can compute faster. Sums use 16 lanes: lane i adds elements i, i + 16,
// …, and the totals of the lanes are then added in halves. This order depends only on n and is the same at every level. y may be
// the same row as an input; otherwise rows must not overlap.
template <class C>
struct RowMath {
  void (*silu)(const C* x, C* y, int64_t n);
  void (*exp)(const C* x, C* y, int64_t n);
  void (*add)(const C* a, const C* b, C* y, int64_t n);
  void (*sub)(const C* a, const C* b, C* y, int64_t n);
  void (*mul)(const C* a, const C* b, C* y, int64_t n);
  void (*scale)(const C* x, C* y, C factor, C offset, int64_t n);       // y = factor · x + offset
  void (*affine)(const C* x, const C* a, const C* b, C* y, int64_t n);  // y = a · x + b
  void (*affine_silu)(const C* x, const C* a, const C* b, C* y, int64_t n);
  void (*axpy)(C a, const C* x, C* y, int64_t n);               // y += a · x
  void (*swiglu)(const C* gate, const C* up, C* y, int64_t n);  // y = silu(gate) · up

  C (*sum)(const C* x, int64_t n);
  C (*dot)(const C* a, const C* b, int64_t n);
  C (*max)(const C* x, int64_t n);                     // n > 0
  C (*deviation)(const C* x, C mean, int64_t n);       // Σ (x − mean)²
  C (*exp_sum)(const C* x, C shift, C* y, int64_t n);  // y = exp(x − shift); returns Σ y

  void (*normalise)(const C* x, C mean, C factor, C* y, int64_t n);  // y = (x − mean) · factor
  // y = (1 + scale) · (x − mean) · factor + shift
  void (*modulate)(const C* x, C mean, C factor, const C* shift, const C* scale, C* y, int64_t n);
  void (*weigh)(const C* x, C factor, const C* weight, C* y, int64_t n);  // y = x · factor · weight
  void (*add_deviation)(const C* x, const C* mean, C* sum, int64_t n);    // sum += (x − mean)², each

  // Rotates n/2 pairs of elements, (2i, 2i+1) or (i, i + n/2), by angles that are given by their cosines and sines.
  void (*rotate_neighbours)(const C* x, const C* cosine, const C* sine, C* y, int64_t n);
  void (*rotate_halves)(const C* x, const C* cosine, const C* sine, C* y, int64_t n);
};

template <class C>
RowMath<C> scalar_row_math();

}  // namespace flux2::cpu
