#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/stream_communicator.h"
#include "tensor/tensor.h"
#include "train/ranks/process_group.h"

namespace flux2 {

// What one rank has for sums that stay on its device.
struct DeviceSumsOffer {
  std::string problem;    // why its device has none; empty: it has
  std::string device_id;  // the same for two ranks only if they share a device
  std::function<std::shared_ptr<StreamCommunicator>(const StreamCommunicatorOptions&)> open;
};

struct DeviceSums {
  std::shared_ptr<StreamCommunicator> communicator;  // null on all ranks or on none
  std::string problem;                               // why it is null
};

// Opens sums on the devices if every rank can and each has a device of its own. Every rank calls it.
DeviceSums open_device_sums(ProcessGroup& group, const DeviceSumsOffer& offer, double timeout_s);

// Replaces gradients with their sums over all ranks, in F32. A rank that has none for a parameter, because it had no batch, adds
// zeros. Returns when the sums are done. `parameters` gives the shapes; all ranks have the same.
void sum_on_device(StreamCommunicator& ranks, Stream& stream, std::span<const Shape> parameters, std::vector<Tensor>& gradients);

}  // namespace flux2
