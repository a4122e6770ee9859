#pragma once

#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/stream_communicator.h"

namespace flux2 {

// The device of a rank that is the `local_rank`th process of its machine: "auto" and "cuda" become a GPU of its own. Ranks take
// the GPUs in turn if there are fewer of them. Any other device is kept.
std::string device_of_rank(const std::string& device, int local_rank);

bool built_with_nccl();  // whether or not the library is here

// Sums over ranks that stay on GPUs, through NCCL.
struct GpuSums {
  std::string problem;  // why it cannot be used on this machine; empty when it can
  std::string version;  // of the library, when it can be used
};
GpuSums gpu_sums();

// What tells two GPUs apart, also on different machines; empty for other devices.
std::string gpu_identity(Stream& stream);

// Every rank calls it. Throws if this stream's device has no such sums (gpu_identity() is empty or gpu_sums() has a problem).
std::shared_ptr<StreamCommunicator> open_gpu_sums(const std::shared_ptr<Stream>& stream,
                                                  const StreamCommunicatorOptions& options);

}  // namespace flux2
