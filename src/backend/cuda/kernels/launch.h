#pragma once

#include <cstdint>
#include <initializer_list>

#include "backend/cuda/cuda_stream.h"
#include "tensor/tensor.h"

// What the host side of every kernel needs. Errors are made in launch.cpp: nvcc cannot evaluate fmt's checked strings.
namespace flux2::cuda {

// The stream a kernel over this tensor runs on, with its GPU made current.
CudaStream& stream_for(const Tensor& t);

[[noreturn]] void refuse_dtype(const char* op, DType dtype);

// Number of blocks of `per_block` that cover n; an Error when a grid cannot be that long.
unsigned blocks_for(const char* op, int64_t n, int64_t per_block);

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bytes of these tensors, each element counted once however often it is broadcast.
double traffic(std::initializer_list<const Tensor*> tensors);

inline bool is_aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// A weight vector in a form that a kernel on `activations` reads: contiguous, in their dtype or F32.
Tensor weight_vector(const Tensor& w, DType activations);

}  // namespace flux2::cuda
