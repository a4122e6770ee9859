#include "backend/cuda/cuda_error.h"

#include "base/error.h"

namespace flux2 {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  fail(status == cudaErrorMemoryAllocation ? ErrorCode::OutOfMemory : ErrorCode::Device, "{}: {}", what,
       cudaGetErrorString(status));
}

}  // namespace flux2
