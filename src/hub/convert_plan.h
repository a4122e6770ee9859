#pragma once

#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "weights/named_weights.h"

namespace flux2 {

// How a converted file names and stores its tensors.
enum class FileLayout {
  Bfl,        // safetensors, original names
  Diffusers,  // safetensors, diffusers' names
  Comfy,      // safetensors, original names, a descriptor beside each packed weight
  Gguf,
};
const std::vector<std::string>& file_layout_names();  // "bfl", "diffusers", "comfy", "gguf"
FileLayout file_layout_named(std::string_view name);

// What weights are stored as: a float type, a block type, or 8 bits with scales beside them (F8_E4M3 with one for the
// whole, I8 with one for each row). Empty: as they are, or BF16 where the file cannot hold that.
using StoredAs = std::optional<DType>;
const std::vector<std::string>& stored_as_names();  // "keep", "f32", "f16", "bf16", "fp8", "int8", "q8_0", …
StoredAs stored_as_named(std::string_view name);

struct QuantRule {
  std::string text;  // as given: REGEX=TYPE
  std::regex pattern;
  StoredAs type;
};
QuantRule quant_rule(const std::string& text);

struct ConvertChoice {
  FileLayout layout = FileLayout::Bfl;
  StoredAs type;                 // of the matrices inside blocks; those outside are kept, or BF16
  std::vector<QuantRule> rules;  // the first whose pattern is found in the original name decides, wherever the tensor lies
};

// One tensor of the file to be written.
struct PlannedTensor {
  enum class Role { Values, TensorScale, RowScales, Text };

  std::string name;
  DType dtype = DType::BF16;
  Shape shape;
  Role role = Role::Values;
  std::string canonical;         // whose values, or the scales of whose values
  std::vector<IndexRange> rows;  // of it, in the order of the file
  std::string text;              // of a descriptor
};

struct ConvertPlan {
  std::vector<PlannedTensor> tensors;  // in the order of the data
  std::string header;                  // all bytes in front of it
  bool gguf = false;                   // tensors are padded

  uint64_t bytes_of(const PlannedTensor& t) const;  // without padding
  uint64_t padding_of(const PlannedTensor& t) const;
  uint64_t total_bytes() const;
};

// Decides names, types and order from headers alone. Throws InvalidArgument for what the layout cannot hold.
ConvertPlan plan_conversion(const NamedWeights& weights, const ConvertChoice& choice);

}  // namespace flux2
