#pragma once

#include <filesystem>
#include <memory>

#include "tensor/device.h"

namespace flux2 {

// How many GPUs can be used; 0 on a machine without a GPU or without its driver.
int cuda_device_count();

struct CudaOptions {
  // Where the fastest algorithms of matrix products are remembered. Empty: the library's first choice is taken, nothing
  // is timed.
  std::filesystem::path plan_folder;
  size_t memory_limit = 0;  // bytes that may be taken from the GPU; 0: all there is
};

// Opens the GPU of that number; an Error(Device) that says why when it cannot be used.
std::shared_ptr<Device> open_cuda(int index, const CudaOptions& options = {});

}  // namespace flux2
