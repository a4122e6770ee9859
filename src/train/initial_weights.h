#pragma once

#include <cstdint>
#include <vector>

#include "train/trained_model.h"

namespace flux2 {

// Values from which a network is trained from scratch: matrices and convolutions uniform after Xavier, modulations N(0, 0.01),
// embeddings N(0, 0.02), the transformer's last layer and biases 0, scales of norms 1. They depend on the seed and on the place
// of each parameter in the list.
void initialise(const std::vector<TrainedParameter>& parameters, uint64_t seed);

}  // namespace flux2
