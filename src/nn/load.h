#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

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
  // The quantised form of a matrix where it was kept from an earlier start; empty: nothing was.
  std::function<Tensor(const Parameter&)> kept;
  std::function<void(const Parameter&, const Tensor&)> quantised;  // called with each matrix that was quantised now; may be empty
};

// The largest extent of a tensor that a network is built from. Those of published models are below 2^18.
constexpr int64_t kMostExtent = int64_t{1} << 24;

// The shape of a tensor that a configuration is derived from. Throws Incompatible, naming the file and the tensor, if it is
// missing, has another number of axes, or has an extent outside 1 … kMostExtent: widths are multiplied and divided by each other.
Shape config_shape(const NamedWeights& weights, const std::string& name, int rank);

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

// The matrices that load_parameters() quantises, in their order. Opens none.
std::vector<std::pair<std::string, Shape>> quantised_matrices(const NamedWeights& weights, Quant quant,
                                                              const std::function<void(const ParameterVisitor&)>& visit);

// Whether `quant` applies to this parameter: matrices of the repeated blocks, which hold nearly all weights. Layers outside
// them (input, output, modulation, embeddings) are small and the ones whose errors show.
bool is_quantised(const Parameter& parameter, Quant quant);

// The dtype of a parameter after loading, if the file stores it as `stored`.
DType loaded_dtype(const Parameter& parameter, DType stored, Quant quant, DType activations);

}  // namespace flux2
