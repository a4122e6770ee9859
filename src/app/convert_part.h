#pragma once

#include <filesystem>
#include <string>

#include "app/context.h"
#include "hub/convert.h"
#include "hub/recognise.h"

namespace flux2 {

// A part of a model that can be converted: "transformer", "text-encoder" or "vae".
struct ConvertiblePart {
  const char* name;
  ComponentKind kind;
  ModelPart part;
};

// The part of that name; without a name the first one that the input contains.
const ConvertiblePart& convertible_part(const Recognition& input, const std::string& name);

// A path, or the path of the registered part of that name.
std::filesystem::path path_to_convert(const std::string& input, const std::string& part, const AppContext& context);

// A text encoder in a GGUF file has its tokenizer inside: reads the one next to the encoder. Logs a warning if there is none.
void add_tokenizer(const Component& encoder, const NamedWeights& weights, ConvertOptions& options, const Log& log);

}  // namespace flux2
