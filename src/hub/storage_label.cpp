#include <algorithm>
#include <map>

#include "hub/recognise_parts.h"

namespace flux2 {

namespace {

bool is_block_weight(const StoredTensor& t) {
  if (t.shape.rank() < 2) return false;
  for (const char* part : {"blocks.", "layers.", "blk.", "down.", "up."})
    if (t.name.find(part) != std::string::npos) return true;
  return false;
}

std::string kind_of(const StoredTensor& t) {
  if (t.dtype_name == "BF16") return "bf16";
  if (t.dtype_name == "F16") return "f16";
  if (t.dtype_name == "F32") return "f32";
  if (t.dtype_name.starts_with("F8_")) return "fp8";
  if (t.dtype_name == "I8") return "int8";
  if (t.dtype_name.starts_with("U8")) return "packed (unknown scheme)";
  std::string name = t.dtype_name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

bool is_packed(const std::string& kind) { return kind != "bf16" && kind != "f16" && kind != "f32"; }

}  // namespace

std::string storage_label(const WeightSource& source, const std::string& prefix) {
  std::map<std::string, uint64_t> bytes;
  for (const bool blocks_only : {true, false}) {
    for (const StoredTensor& t : source.tensors())
      // Scales of packed weights are no weights of their own.
      if (t.name.starts_with(prefix) && t.name.find("_scale") == std::string::npos && (!blocks_only || is_block_weight(t)))
        bytes[kind_of(t)] += t.bytes.size();
    if (!bytes.empty()) break;
  }
  if (bytes.empty()) return "";
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto packed = std::count_if(bytes.begin(), bytes.end(), [](const auto& k) { return is_packed(k.first); });
  return packed > 1 ? most->first + ", mixed" : most->first;
}

}  // namespace flux2
