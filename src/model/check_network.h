#pragma once

#include <functional>

#include "nn/parameter.h"
#include "weights/named_weights.h"

namespace flux2 {

// check_parameters() (nn/load.h) for one of our networks. The error also names the tensors that the network's sizes were read
// from: if one of those is damaged, all others seem to have the wrong shape.
void check_network(const NamedWeights& weights, const std::function<void(const ParameterVisitor&)>& visit);

}  // namespace flux2
