#pragma once

#include <cuda_runtime_api.h>

namespace flux2 {

// An Error(Device) "what: the runtime's words" unless status is cudaSuccess. The runtime's sticky last error is cleared.
void check_cuda(cudaError_t status, const char* what);

}  // namespace flux2
