#pragma once

#include <functional>

#include "nn/parameter.h"
#include "tensor/communicator.h"
#include "weights/named_weights.h"

namespace flux2 {

struct LoadOptions {
  Stream& stream;                  // where the model will run
  DType activations = DType::F32;  // norms and biases are brought to this
  Communicator* ranks = nullptr;   // with several ranks each opens only its share
};

// Opens every tensor that `visit` lists. On a host device matrices stay in the mapped file; elsewhere they are
// copied to the device. Missing tensors and wrong shapes are reported together, the first ten by name.
void load_parameters(const NamedWeights& weights, const LoadOptions& options,
                     const std::function<void(const ParameterVisitor&)>& visit);

}  // namespace flux2
