#include "hub/tensor_table.h"

#include <cctype>
#include <map>
#include <tuple>

namespace flux2 {

namespace {

// "double_blocks.12.norm" → "double_blocks.*.norm"; digits inside a word stay ("fc1", "qwen3").
std::string without_numbers(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const size_t end = std::min(name.find('.', i), name.size());
    const std::string part = name.substr(i, end - i);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    out += number ? "*" : part;
    if (end < name.size()) out += '.';
    i = end + 1;
  }
  return out;
}

}  // namespace

std::vector<TensorGroup> tensor_groups(const WeightSource& source, const std::string& prefix) {
  std::vector<TensorGroup> groups;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> known;
  for (const StoredTensor& tensor : source.tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    const std::string name = without_numbers(tensor.name);
    const auto [at, is_new] = known.try_emplace({name, tensor.shape.str(), tensor.dtype_name}, groups.size());
    if (is_new) groups.push_back({.name = name, .shape = tensor.shape, .type = tensor.dtype_name});
    TensorGroup& group = groups[at->second];
    ++group.count;
    group.parameters += tensor.shape.numel();
  }
  return groups;
}

}  // namespace flux2
