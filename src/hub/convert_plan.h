#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/pattern.h"
#include "hub/quantisation.h"
#include "weights/gguf_writer.h"
#include "weights/named_weights.h"

namespace flux2 {

// How a converted file names and stores its tensors.
enum class FileLayout {
  Bfl,        // safetensors, original names
  Diffusers,  // safetensors, diffusers' names
  Comfy,      // safetensors, original names, a descriptor beside each quantised weight
  Gguf,
};
const std::vector<std::string>& file_layout_names();  // "bfl", "diffusers", "comfy", "gguf"
FileLayout file_layout_named(std::string_view name);

struct QuantRule {
  std::string text;  // as given: REGEX=TYPE
  Pattern pattern;
  std::optional<Quantisation> type;
};
QuantRule quant_rule(const std::string& text);

struct ConvertChoice {
  FileLayout layout = FileLayout::Bfl;
  uint64_t shard_bytes = 0;               // a safetensors model larger than that becomes a series of files; 0: never
  std::optional<Quantisation> type;       // of the matrices inside blocks; those outside are kept, or BF16
  std::vector<GgufPair> more_pairs = {};  // of a GGUF file, such as a tokenizer's
  std::string training = {};              // of a transformer: Component::training()
  std::vector<QuantRule> rules;  // the first whose pattern is found in the original name decides, wherever the tensor lies
};

// One tensor of the file to be written.
struct PlannedTensor {
  enum class Role { Values, Scales, TiledScales, Text };

  std::string name;
  DType dtype = DType::BF16;
  Shape shape;
  Role role = Role::Values;
  std::string weight;            // the name of the values, beside which others stand
  Quantisation type;             // of the values
  std::string canonical;         // whose values, or the scales of whose values
  std::vector<IndexRange> rows;  // of it, in the order of the file
  std::string text;              // of a descriptor

  uint64_t bytes() const;  // without padding
};

// A file to be written.
struct ConvertPlan {
  std::vector<PlannedTensor> tensors;  // in the order of the data
  std::string header;                  // all bytes in front of it
  bool gguf = false;                   // tensors are padded

  uint64_t padding_of(const PlannedTensor& t) const;
  uint64_t total_bytes() const;
};

// The metadata of a safetensors file that a file with the same weights keeps: about the model and its training.
std::map<std::string, std::string> metadata_to_keep(const WeightSource& source);

// Decides names, types and order from headers alone. Throws InvalidArgument for what the layout cannot hold.
std::vector<ConvertPlan> plan_conversion(const NamedWeights& weights, const ConvertChoice& choice);

}  // namespace flux2
