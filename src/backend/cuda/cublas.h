#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "tensor/dtype.h"

namespace flux2 {

// A row-major matrix in device memory; row_stride in elements.
struct Matrix {
  void* data;
  DType dtype;  // F32 or BF16
  int64_t rows, columns, row_stride;
};

// cuBLASLt on one stream: products of row-major matrices summed in F32, without TF32. Nothing is timed: the library's
// own first choice for a shape is taken and remembered.
class Cublas {
 public:
  explicit Cublas(cudaStream_t stream);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  // y[M, N] = factor · a · b (+ bias[N]), where a is [M, K], or [K, M] when transpose_a, and b is [K, N], or [N, K] when
  // transpose_b. a and b have one dtype; y has it too, or is F32. The bias is contiguous, 16-byte aligned, of y's dtype.
  struct Product {
    Matrix a, b, y;
    bool transpose_a = false, transpose_b = false;
    float factor = 1.0f;
    const void* bias = nullptr;
  };
  void multiply(const Product& product);

 private:
  struct Plan;
  using Key = std::array<int64_t, 15>;

  const Plan& plan_for(const Product& product);

  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace flux2
