#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tensor/device.h"

namespace flux2 {

// How many GPUs can be used; 0 on a machine without a GPU or without its driver.
int cuda_device_count();

// Why a GPU cannot be used, in one sentence: too old, or no code for it in this build. Empty when it can.
std::string cuda_problem(int index);
// Why there is no GPU at all: no driver, or one that is too old.
std::string no_cuda_reason();

// The UUID of a stream's GPU in hexadecimal digits; empty if the stream belongs to another kind of device.
std::string cuda_identity(Stream& stream);

struct CudaOptions {
  // The folder where the fastest algorithms of matrix products are stored. Empty: the library's first choice is used and nothing
  // is timed.
  std::filesystem::path plan_folder;
  size_t memory_limit = 0;  // bytes that may be taken from the GPU; 0: all there is
  // For tests: asked before each allocation of the streams. If it returns false, the allocation fails as if the GPU were full.
  std::function<bool(size_t bytes)> allow_allocation = {};
};

// Opens the GPU of that number; an Error(Device) that says why when it cannot be used.
std::shared_ptr<Device> open_cuda(int index, const CudaOptions& options = {});

}  // namespace flux2
