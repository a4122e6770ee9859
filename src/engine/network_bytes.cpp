#include "engine/network_bytes.h"

#include <algorithm>

namespace flux2 {

std::optional<size_t> BlockNumbers::of(const std::string& parameter) {
  const std::string_view block = block_of(parameter);
  if (block.empty()) return std::nullopt;
  return numbers_.try_emplace(std::string(block), numbers_.size()).first->second;
}

NetworkBytes network_bytes(const NamedWeights& weights, Quant quant, DType activations, bool on_host,
                           const std::function<void(const ParameterVisitor&)>& visit) {
  NetworkBytes bytes;
  BlockNumbers numbers;
  visit([&](const Parameter& p) {
    int64_t size = bytes_for(loaded_dtype(p, weights.dtype(p.name), quant, activations), p.shape.numel());
    // The system maps 64 KiB around every row that is read: 512 rows are as many tokens as a prompt has.
    if (p.kind == ParameterKind::Table && on_host) size = std::min(size, int64_t{512} << 16);
    const auto block = numbers.of(p.name);
    bytes.blocks.resize(numbers.count());
    (block ? bytes.blocks[*block] : bytes.outside) += size;
  });
  return bytes;
}

}  // namespace flux2
