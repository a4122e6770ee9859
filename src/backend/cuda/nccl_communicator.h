#pragma once

#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/stream_communicator.h"

namespace flux2 {

bool built_with_nccl();      // nccl_communicator.cpp is compiled if CMake finds NCCL's header, otherwise nccl_missing.cpp
std::string nccl_problem();  // why NCCL cannot be used on this machine, in one sentence; empty when it can
std::string nccl_version();  // of the installed library: "2.28.9"

// Sums over the ranks through NCCL, on this stream of a GPU. Every rank calls it and waits for the others. NCCL refuses two
// ranks on one GPU. Throws Device with a sentence that names the call that failed.
std::shared_ptr<StreamCommunicator> open_nccl(std::shared_ptr<Stream> stream, const StreamCommunicatorOptions& options);

}  // namespace flux2
