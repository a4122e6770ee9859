#include "app/convert_part.h"

#include "app/registry_access.h"
#include "hub/gguf_tokenizer.h"
#include "weights/gguf_file.h"

namespace flux2 {

namespace {

constexpr ConvertiblePart kConvertible[] = {{"transformer", ComponentKind::Transformer, ModelPart::Transformer},
                                            {"text-encoder", ComponentKind::TextEncoder, ModelPart::TextEncoder},
                                            {"vae", ComponentKind::Autoencoder, ModelPart::Autoencoder}};

}  // namespace

const ConvertiblePart& convertible_part(const Recognition& input, const std::string& name) {
  for (const ConvertiblePart& p : kConvertible)
    if (name.empty() ? input.find(p.kind) != nullptr : name == p.name) return p;
  return kConvertible[0];  // required_part() says what was found instead
}

std::filesystem::path path_to_convert(const std::string& input, const std::string& part, const AppContext& context) {
  for (const ConvertiblePart& p : kConvertible)
    if (part.empty() || part == p.name)
      if (const auto path = model_path(input, p.kind, context); path != input) return path;
  return input;
}

void add_tokenizer(const Component& encoder, const NamedWeights& weights, ConvertOptions& options, const Log& log) {
  const auto path = tokenizer_beside(encoder.path);
  if (path.empty()) return log.warn("no tokenizer was found next to the text encoder, so the file will not contain one");
  const BpeFiles files = read_tokenizer(path);
  options.choice.more_pairs = gguf_tokenizer_pairs(files, weights.shape("model.embed_tokens.weight")[0]);
}

}  // namespace flux2
