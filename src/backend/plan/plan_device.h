#pragma once

#include <memory>

#include "tensor/device.h"

namespace flux2 {

// A device that computes nothing and counts memory: a model runs on it as it would on `target`, op by op, with the fused forms
// the target has, and its stream's peak_bytes() is the peak that the target's pool would have reached. Weights on it are counted
// but take no real memory.
//
// It does not see the memory that kernels of a CPU allocate internally, nor small workspaces of a GPU's libraries.
std::shared_ptr<Device> open_plan_device(const Device& target);

// Such a device for a GPU that need not be there: it has every kernel, and multiplies 8-bit numbers.
std::shared_ptr<Device> open_plan_gpu(const MemorySize& memory);

// The peak of such a stream since the last call. The peak is reset to what is in use now.
size_t restart_peak(Stream& stream);

}  // namespace flux2
