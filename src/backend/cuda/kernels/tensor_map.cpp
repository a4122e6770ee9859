#include "backend/cuda/kernels/tensor_map.h"

#include <cuda_runtime_api.h>

#include <array>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/launch.h"
#include "base/error.h"

namespace flux2::cuda {

bool is_walkable(const Tensor& t) {
  return t.dtype() == DType::BF16 && t.stride(1) == 1 && t.dim(1) % 8 == 0 && (t.dim(0) == 1 || t.stride(0) % 8 == 0) &&
         is_aligned(t.raw(), 16);
}

// The driver's function is found at run time: a program that links the driver does not start on a machine without one.
CUtensorMap tensor_map(const Tensor& t, int box_columns, int box_rows) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
             "describing a matrix");
  require(box_columns == 16 || box_columns == 32 || box_columns == 64, "the copy engine swizzles no rows of {}", box_columns);
  const CUtensorMapSwizzle swizzle = box_columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : box_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                         : CU_TENSOR_MAP_SWIZZLE_32B;
  const std::array<cuuint64_t, 2> extents{static_cast<cuuint64_t>(t.dim(1)), static_cast<cuuint64_t>(t.dim(0))};
  const std::array<cuuint64_t, 1> strides{static_cast<cuuint64_t>(t.dim(0) == 1 ? t.dim(1) : t.stride(0)) * 2};
  const std::array<cuuint32_t, 2> box{static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)}, steps{1, 1};
  CUtensorMap map;
  const CUresult status = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t.raw(), extents.data(), strides.data(), box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check_cuda(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "describing a matrix");
  return map;
}

int multiprocessors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "asking for the GPU's properties");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "asking for the GPU's properties");
  return count;
}

bool is_hopper() {
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "asking for the GPU's properties");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for the GPU's properties");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for the GPU's properties");
  return major == 9 && minor == 0;
}

}  // namespace flux2::cuda
