#include "engine/network_bytes.h"

#include <algorithm>

namespace flux2 {

std::optional<size_t> BlockNumbers::of(const std::string& parameter) {
  for (const char* list : {"blocks.", "layers."}) {
    const size_t at = parameter.find(list);
    if (at == std::string::npos) continue;
    const size_t end = parameter.find('.', at + std::string(list).size());
    return numbers_.try_emplace(parameter.substr(0, end), numbers_.size()).first->second;
  }
  return std::nullopt;
}

DType loaded_dtype(const Parameter& p, const NamedWeights& weights, Quant quant, DType activations) {
  const DType stored = weights.dtype(p.name);
  if (p.kind == ParameterKind::Vector) return activations;
  if (p.kind == ParameterKind::Statistic) return DType::F32;
  return is_quantised(p, quant) && is_float(stored) ? dtype_of(quant) : stored;
}

NetworkBytes network_bytes(const NamedWeights& weights, Quant quant, DType activations, bool on_host,
                           const std::function<void(const ParameterVisitor&)>& visit) {
  NetworkBytes bytes;
  BlockNumbers numbers;
  visit([&](const Parameter& p) {
    int64_t size = bytes_for(loaded_dtype(p, weights, quant, activations), p.shape.numel());
    // The system maps 64 KiB around every row that is read: 512 rows are as many tokens as a prompt has.
    if (p.kind == ParameterKind::Table && on_host) size = std::min(size, int64_t{512} << 16);
    const auto block = numbers.of(p.name);
    bytes.blocks.resize(numbers.count());
    (block ? bytes.blocks[*block] : bytes.outside) += size;
  });
  return bytes;
}

}  // namespace flux2
