#include "train/source_layout.h"

#include <array>

namespace flux2 {

std::map<std::string, Tensor> file_tensors(const std::function<void(const ParameterVisitor&)>& visit) {
  constexpr std::array<int, 4> kFileOrder{0, 3, 1, 2};  // [O, kh, kw, I] in memory, [O, I, kh, kw] in files
  std::map<std::string, Tensor> tensors;
  visit([&](const Parameter& p) {
    const Tensor value = p.tensor.detached();
    tensors[p.name] = p.kind == ParameterKind::Conv ? value.permuted(kFileOrder).contiguous() : value;
  });
  return tensors;
}

NamedTensors in_source_layout(const NamedWeights& source, const std::map<std::string, Tensor>& changed) {
  NamedTensors tensors;
  for (const std::string& canonical : source.names()) {
    const std::vector<StoredRows> pieces = source.pieces(canonical);
    const bool ggml = source.dialect() == Dialect::Ggml;
    require(ggml || pieces.size() == 1, "{} of {} is stored in pieces", canonical, name_of(source.part()));
    const StoredTensor& stored = *pieces.front().tensor;
    const auto found = changed.find(canonical);
    Tensor value = found != changed.end() ? found->second : ggml ? source.open(canonical) : source.source().open(stored.name);
    // diffusers keeps 1×1 convolutions of attention as matrices.
    if (!ggml) value = value.reshaped(stored.shape);
    tensors.emplace_back(ggml ? canonical : stored.name, std::move(value));
  }
  for (const auto& [name, value] : changed)
    if (!source.has(name)) tensors.emplace_back(name, value);
  return tensors;
}

}  // namespace flux2
