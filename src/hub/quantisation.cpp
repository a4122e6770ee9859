#include "hub/quantisation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "weights/names.h"

namespace flux2 {

namespace {

struct TypeName {
  const char* name;
  std::optional<Quantisation> type;
};
constexpr std::array<TypeName, 20> kTypeNames = {{{"keep", {}},
                                                  {"f32", {{DType::F32}}},
                                                  {"f16", {{DType::F16}}},
                                                  {"bf16", {{DType::BF16}}},
                                                  {"fp8", {{DType::F8_E4M3, Scales::Tensor}}},
                                                  {"fp8_block", {{DType::F8_E4M3, Scales::Blocks}}},
                                                  {"int8", {{DType::I8, Scales::Rows}}},
                                                  {"nvfp4", {{DType::U8, Scales::Nvfp4}}},
                                                  {"q8_0", {{DType::Q8_0}}},
                                                  {"q6_k", {{DType::Q6_K}}},
                                                  {"q5_k", {{DType::Q5_K}}},
                                                  {"q5_1", {{DType::Q5_1}}},
                                                  {"q5_0", {{DType::Q5_0}}},
                                                  {"q4_k", {{DType::Q4_K}}},
                                                  {"q4_1", {{DType::Q4_1}}},
                                                  {"q4_0", {{DType::Q4_0}}},
                                                  {"iq4_nl", {{DType::IQ4_NL}}},
                                                  {"iq4_xs", {{DType::IQ4_XS}}},
                                                  {"q3_k", {{DType::Q3_K}}},
                                                  {"q2_k", {{DType::Q2_K}}}}};

// By the names that the file stores, for any model.
bool is_block_weight(const StoredTensor& t) {
  if (t.shape.rank() < 2) return false;
  if (!block_of(t.name).empty()) return true;
  for (const char* part : {"blk.", "down.", "up."})
    if (t.name.find(part) != std::string::npos) return true;
  return false;
}

std::string kind_of(const StoredTensor& t) {
  if (t.dtype_name == "BF16") return "bf16";
  if (t.dtype_name == "F16") return "f16";
  if (t.dtype_name == "F32") return "f32";
  if (t.dtype_name.starts_with("F8_")) return "fp8";
  if (t.dtype_name == "I8") return "int8";
  if (t.dtype_name.starts_with("U8")) return "quantised (unknown scheme)";
  std::string name = t.dtype_name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

bool is_quantised(const std::string& kind) { return kind != "bf16" && kind != "f16" && kind != "f32"; }

}  // namespace

std::string Quantisation::name() const { return scales == Scales::Nvfp4 ? "NVFP4" : std::string(name_of(dtype)); }

const std::vector<std::string>& quantisation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TypeName& t : kTypeNames) all.emplace_back(t.name);
    return all;
  }();
  return names;
}

std::optional<Quantisation> quantisation_named(std::string_view name) {
  for (const TypeName& t : kTypeNames)
    if (name == t.name) return t.type;
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of {}", name, fmt::join(quantisation_names(), ", "));
}

std::string quantisation_label(const WeightSource& source, const std::string& prefix) {
  std::map<std::string, uint64_t> bytes;
  for (const bool blocks_only : {true, false}) {
    for (const StoredTensor& t : source.tensors())
      // Scales of quantised weights do not count as weights.
      if (t.name.starts_with(prefix) && t.name.find("_scale") == std::string::npos && (!blocks_only || is_block_weight(t)))
        bytes[kind_of(t)] += t.bytes.size();
    if (!bytes.empty()) break;
  }
  if (bytes.empty()) return "";
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto quantised = std::count_if(bytes.begin(), bytes.end(), [](const auto& k) { return is_quantised(k.first); });
  return quantised > 1 ? most->first + ", mixed" : most->first;
}

}  // namespace flux2
