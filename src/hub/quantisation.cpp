#include "hub/stored_as.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"

namespace flux2 {

namespace {

struct TypeName {
  const char* name;
  StoredAs type;
};
constexpr std::array<TypeName, 20> kTypeNames = {{{"keep", {}},
                                                  {"f32", {{DType::F32}}},
                                                  {"f16", {{DType::F16}}},
                                                  {"bf16", {{DType::BF16}}},
                                                  {"fp8", {{DType::F8_E4M3, Packing::TensorScale}}},
                                                  {"fp8_block", {{DType::F8_E4M3, Packing::BlockScales}}},
                                                  {"int8", {{DType::I8, Packing::RowScales}}},
                                                  {"nvfp4", {{DType::U8, Packing::Nvfp4}}},
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

}  // namespace

std::string StorageType::name() const { return packing == Packing::Nvfp4 ? "NVFP4" : std::string(name_of(dtype)); }

const std::vector<std::string>& stored_as_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TypeName& t : kTypeNames) all.emplace_back(t.name);
    return all;
  }();
  return names;
}

StoredAs stored_as_named(std::string_view name) {
  for (const TypeName& t : kTypeNames)
    if (name == t.name) return t.type;
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of {}", name, fmt::join(stored_as_names(), ", "));
}

}  // namespace flux2
