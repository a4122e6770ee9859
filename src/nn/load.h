#pragma once

#include <functional>

#include "nn/parameter.h"
#include "tensor/communicator.h"
#include "weights/named_weights.h"
#include "weights/quantise.h"

namespace flux2 {

struct LoadOptions {
  Stream& stream;                                       // where the model will run
  DType activations = DType::F32;                       // norms and biases are converted to this
  Communicator* ranks = nullptr;                        // with several ranks, each opens only its share
  Quant quant = Quant::None;                            // for the matrices inside blocks; the few outside blocks stay as they are
  int threads = 0;                                      // for quantising
  std::function<bool(const Parameter&)> stays_on_host;  // matrices that are copied to the device later; empty: none
};

// Checks, from headers alone, that every tensor listed by `visit` exists with the right shape. All missing or wrong tensors are
// reported in one error, the first ten by name.
void check_parameters(const NamedWeights& weights, const std::function<void(const ParameterVisitor&)>& visit);

// Opens every tensor that `visit` lists, after checking them all. On a host device matrices stay in the mapped file unless
// they are quantised; elsewhere they are copied to the device.
void load_parameters(const NamedWeights& weights, const LoadOptions& options,
                     const std::function<void(const ParameterVisitor&)>& visit);

// Quantises a matrix, on the host or on a device, for use on that stream. A GPU that multiplies e4m3 also does the rounding; the
// result is the same.
Tensor quantised_on(Stream& stream, const Tensor& matrix, Quant quant, ThreadPool& threads);

// Whether `quant` applies to this parameter. It applies to matrices of the repeated blocks, which hold nearly all weights. Layers
// outside the blocks (input, output, modulation, embeddings) are small, and their errors are visible in the image.
bool is_quantised(const Parameter& parameter, Quant quant);

// The dtype of a parameter after loading, if the file stores it as `stored`.
DType loaded_dtype(const Parameter& parameter, DType stored, Quant quant, DType activations);

}  // namespace flux2
