#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "backend/cuda/matmul_plans.h"
#include "tensor/dtype.h"

namespace flux2 {

// A row-major matrix in device memory, or the first of several that lie batch_stride apart; strides in elements.
struct Matrix {
  void* data;
  DType dtype;  // F32, BF16, F8_E4M3 or I8; a result also I32
  int64_t rows, columns, row_stride, batch_stride = 0;
};

// cuBLASLt on one stream: products of row-major matrices summed in F32, without TF32. The algorithm for a shape is the
// library's own first choice or, where `plans` remembers choices, the fastest of its first few, timed once.
class Cublas {
 public:
  Cublas(cudaStream_t stream, MatmulPlans& plans);
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  // y[M, N] = factor · a · b (+ bias[N]) (+ y, when `add`), where a is [M, K], or [K, M] when transpose_a, and b is [K, N], or
  // [N, K] when transpose_b. a and b have one dtype; y has it too, or is F32. The bias is contiguous, 16-byte aligned, of y's
  // dtype. 8-bit operands: b is transposed, a is not. The product of I8 is I32. That of F8_E4M3 is F32, or BF16 where
  // both have a factor for each row, [M] and [N], and the GPU applies those (scales_rows). With `batches` it is as many products
  // of matrices at equal distances.
  struct Product {
    Matrix a, b, y;
    bool transpose_a = false, transpose_b = false;
    float factor = 1.0f;
    const void* bias = nullptr;
    bool add = false;
    const float *a_scales = nullptr, *b_scales = nullptr;
    int64_t batches = 1;
  };
  void multiply(const Product& product);
  // The same, if the library has such a product: whether it adds to the result of 8-bit operands depends on its version.
  bool multiply_if_possible(const Product& product);

  // Whether GPUs of that compute capability (90 for 9.0) have products of F8_E4M3 here.
  static bool multiplies_fp8(int compute_capability);
  // Whether the GPU's product of F8_E4M3 takes factors for rows.
  bool scales_rows() const { return scales_rows_; }

 private:
  struct Plan;
  using Key = std::array<int64_t, 19>;

  Plan& plan_for(const Product& product);
  // Nothing if the library knows no algorithm; then `status` says why.
  std::optional<cublasLtMatmulAlgo_t> choose(const Plan& plan, const Product& product, cublasStatus_t& status) const;
  // Seconds that one run on these operands takes, infinite if the algorithm cannot run. Overwrites `result`, laid out like y.
  double time(const Plan& plan, const Product& product, const cublasLtMatmulAlgo_t& algorithm, void* result) const;
  cublasStatus_t enqueue(const Plan& plan, const Product& product, const cublasLtMatmulAlgo_t& algorithm, void* result) const;

  cudaStream_t stream_;
  MatmulPlans& remembered_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  bool scales_rows_ = false;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace flux2
