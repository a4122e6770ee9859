#include <fmt/format.h>

#include "hub/quantisation.h"
#include "hub/recognise_parts.h"

namespace flux2 {

namespace {

// "ViT-L/14", as published towers are called.
std::string tower_name(const ClipConfig& c) {
  const char* size = c.hidden == 768    ? "B"
                     : c.hidden == 1024 ? "L"
                     : c.hidden == 1280 ? "H"
                     : c.hidden == 1664 ? "bigG"
                                        : nullptr;
  return size ? fmt::format("ViT-{}/{}", size, c.patch) : fmt::format("width {}", c.hidden);
}

std::string transformer_of_width(int64_t hidden) {
  for (const Flux2Config& c : {klein_4b_config(), klein_9b_config(), dev_config()})
    if (c.hidden == hidden) return c.name();
  return fmt::format("a width of {}", hidden);
}

}  // namespace

std::optional<Component> recognise_image_encoder(const WeightSource& source) {
  const StoredTensor* sign = clip_sign(source);
  if (!sign) return std::nullopt;
  Component c{.kind = ComponentKind::ImageEncoder, .family = "CLIP"};
  c.storage = quantisation_label(source, "");
  c.evidence.push_back(fmt::format("{} {}: a vision tower of CLIP", sign->name, sign->shape));
  try {
    c.image_encoder = detect_clip(source);
    c.variant = tower_name(*c.image_encoder);
    c.evidence.push_back(c.image_encoder->name());
    if (source.find("text_projection.weight")) c.evidence.push_back("the text tower in the same file is not used");
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint = e.hint().plain();
  }
  return c;
}

std::optional<Component> recognise_image_prompt(const WeightSource& source) {
  Component c{.kind = ComponentKind::ImagePrompt};
  c.storage = quantisation_label(source, "");
  if (const std::string older = flux1_image_prompt(source); !older.empty()) {
    c.family = "FLUX.1";
    c.problem = fmt::format("this is {}: it was made for FLUX.1 and cannot be used with FLUX.2", older);
    c.hint = "use an image-prompt adapter that was trained for FLUX.2, or give the image as a reference";
    return c;
  }
  const StoredTensor* sign = image_prompt_sign(source);
  if (!sign) return std::nullopt;
  c.family = "FLUX.2";
  c.evidence.push_back(fmt::format("{} {}: the projector of an image prompt", sign->name, sign->shape));
  try {
    c.image_prompt = detect_image_prompt(source);
    const ImagePromptConfig& config = *c.image_prompt;
    c.variant = fmt::format("image prompt for {}", transformer_of_width(config.hidden));
    c.evidence.push_back(config.name());
    c.needs = fmt::format("an image encoder with {} vectors of {} values ({})",
                          config.feature == ImageFeature::Pooled ? "pooled" : "projected", config.feature_width, config.encoder);
  } catch (const Error& e) {
    c.problem = e.what();
    c.hint = e.hint().plain();
  }
  return c;
}

}  // namespace flux2
