#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/placement.h"
#include "nn/load.h"

namespace flux2 {

// Numbers the repeated blocks of a network in the order its visit() lists them, which is the order they run in.
class BlockNumbers {
 public:
  // The block a parameter belongs to; none for those outside of blocks.
  std::optional<size_t> of(const std::string& parameter);
  size_t count() const { return numbers_.size(); }

 private:
  std::map<std::string, size_t> numbers_;  // "single_blocks.7." → 12
};

template <class Network>
size_t block_count(Network& network) {
  BlockNumbers numbers;
  network.visit([&](const Parameter& p) { numbers.of(p.name); });
  return numbers.count();
}

// The memory that the parameters listed by `visit` take, from headers alone. For a table on the host, only the rows that a prompt
// reads are counted.
NetworkBytes network_bytes(const NamedWeights& weights, Quant quant, DType activations, bool on_host,
                           const std::function<void(const ParameterVisitor&)>& visit);

}  // namespace flux2
