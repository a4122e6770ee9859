#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/clip_vision.h"
#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/image_prompt.h"
#include "model/upscaler_config.h"
#include "model/vae_config.h"
#include "model/vit_classifier.h"

namespace flux2 {

enum class ComponentKind {
  Transformer,
  Autoencoder,
  TextEncoder,
  Adapter,
  Tokenizer,
  Upscaler,
  Classifier,
  ImageEncoder,  // CLIP's vision tower
  ImagePrompt,   // the adapter between an image encoder and the transformer
  Unknown
};
const char* name_of(ComponentKind kind);

// One component of a file, as far as its header shows.
struct Component {
  ComponentKind kind = ComponentKind::Unknown;
  std::filesystem::path path;  // what to open
  std::string family;          // "FLUX.2", "FLUX.1", "SDXL", "Qwen3", "T5", …; empty when unknown
  std::string variant;         // "klein 4B", "Qwen3-4B", "small decoder", "LoRA rank 16 for klein 4B", …
  std::string dialect;         // "original" or "diffusers"; of an adapter the style of its keys
  std::string prefix;          // in front of every name
  std::string storage;         // "bf16", "fp8", "nvfp4, mixed", …
  int64_t tensors = 0, parameters = 0;
  uint64_t bytes = 0;
  std::vector<std::string> evidence;
  std::string needs;  // what belongs to it: "a Qwen3 text encoder of width 2560"

  std::optional<Flux2Config> flux2;  // filled for what this program can run
  std::optional<VaeConfig> vae;
  std::optional<DecoderConfig> decoder;
  std::optional<UpscalerConfig> upscaler;
  std::optional<VitConfig> classifier;
  std::optional<ClipConfig> image_encoder;
  std::optional<ImagePromptConfig> image_prompt;
  std::vector<std::string> serves;  // what a text encoder can do: "text states", "rewriting", "images"
  int64_t text_width = 0;           // width of a text encoder of any family; 0 if unknown

  std::optional<bool> distilled;  // of a klein transformer
  bool kv = false;
  std::string distilled_reason;
  bool distilled_assumed = false;  // there was no evidence
  // For the metadata of files made from it (kTrainingKey); empty when nothing says it, and for other models.
  std::string training() const { return !distilled || distilled_assumed ? "" : kv ? "kv" : *distilled ? "distilled" : "base"; }

  std::string problem;  // why this program cannot use it; empty when it can
  Hint hint;            // what to do about that
  bool usable() const { return problem.empty(); }
};

struct Recognition {
  enum class Kind { Weights, Pipeline, Tokenizer, Image, Unknown };

  Kind kind = Kind::Unknown;
  std::filesystem::path path;
  std::string container;  // "safetensors", "GGUF", "diffusers folder", "PNG", …
  std::vector<Component> components;
  std::map<std::string, std::string> metadata;  // of a weights file
  std::vector<std::string> evidence;            // about the whole

  const Component* find(ComponentKind wanted) const;  // the first of its kind, usable ones before others
};
const char* name_of(Recognition::Kind kind);

// Identifies a file or folder from headers alone. Files of other model families are described, not rejected. Throws NotFound if
// nothing is there and BadFile if a file is damaged.
Recognition recognise(const std::filesystem::path& path, const Log& log = {});

// The component of that kind. Throws Incompatible, naming what was found instead, when there is none to use.
const Component& required_part(const Recognition& recognition, ComponentKind wanted);

}  // namespace flux2
