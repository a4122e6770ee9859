#pragma once

#include <functional>

#include "nn/parameter.h"
#include "tensor/communicator.h"
#include "weights/named_weights.h"
#include "weights/quantise.h"

namespace flux2 {

struct LoadOptions {
  Stream& stream;                                       // where the model will run
  DType activations = DType::F32;                       // norms and biases are brought to this
  Communicator* ranks = nullptr;                        // with several ranks each opens only its share
  Quant quant = Quant::None;                            // of the matrices inside blocks; the few outside them stay as they are
  int threads = 0;                                      // for quantising
  std::function<bool(const Parameter&)> stays_on_host;  // matrices that are brought to the device later; empty: none
};

// Whether every tensor that `visit` lists is there with its shape, from headers alone. What is missing or wrong is reported
// together, the first ten by name.
void check_parameters(const NamedWeights& weights, const std::function<void(const ParameterVisitor&)>& visit);

// Opens every tensor that `visit` lists, after checking them all. On a host device matrices stay in the mapped file unless
// they are quantised; elsewhere they are copied to the device.
void load_parameters(const NamedWeights& weights, const LoadOptions& options,
                     const std::function<void(const ParameterVisitor&)>& visit);

// A matrix, wherever it lies, as `quant` keeps it for use on that stream. A GPU that multiplies in e4m3 also rounds to it; the
// numbers are the same.
Tensor quantised_on(Stream& stream, const Tensor& matrix, Quant quant, ThreadPool& threads);

// Whether `quant` applies to this parameter: matrices of the repeated blocks, which hold nearly all weights. Layers outside
// them (input, output, modulation, embeddings) are small and the ones whose errors show.
bool is_quantised(const Parameter& parameter, Quant quant);

// The type a parameter has once it is loaded, where the file stores it as `stored`.
DType loaded_dtype(const Parameter& parameter, DType stored, Quant quant, DType activations);

}  // namespace flux2
