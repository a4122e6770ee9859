#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "hub/variants.h"
#include "model/decoder_config.h"
#include "model/flux2_config.h"
#include "model/vae_config.h"

namespace flux2 {

// A model with the exact names, shapes and configuration files of a real one, but random weights: for tests, for measuring speed
// and memory, and for trying an installation without a download.
struct SynthOptions {
  enum class Layout {
    Bfl,        // flux-2-NAME.safetensors, ae.safetensors, text_encoder/, tokenizer/
    Diffusers,  // what Flux2KleinPipeline.from_pretrained reads
  };

  std::string variant = "tiny";  // "tiny", "dev-tiny" or any spelling of a published id; "…base…" makes a base model
  std::filesystem::path out;     // folder, created
  Layout layout = Layout::Bfl;
  DType dtype = DType::BF16;  // or F32
  uint64_t seed = 0;
  bool base = false;  // not distilled

  // Changes to the variant's geometry. The text encoder must give the transformer's text width; VAE widths are
  // multiples of 32, the number of groups its norms have.
  std::optional<int> double_blocks, single_blocks;
  std::optional<Flux2Config> transformer;
  std::optional<VaeConfig> vae;
  std::optional<DecoderConfig> text_encoder;
  std::string name;                        // empty: the variant's
  std::vector<std::pair<int, int>> sizes;  // that it is to be trained on, width and height, for model_index.json
  std::optional<ModelDefaults> defaults;   // of images; text_layers are those of the text encoder

  bool needed_layers_only = false;  // leave out the text encoder's layers that are never read
  // A tokenizer to copy. Without one, a small byte-level vocabulary is written, which can encode any text.
  std::filesystem::path tokenizer;
};

struct SynthProgress {
  std::string file;
  uint64_t bytes = 0, total = 0;  // of all weight files
};

// Writes the model in constant memory. The same seed gives the same canonical values in every layout, and in BF16 the
// rounded F32 ones. The small dev model gets a vision tower as well, so that other programs can load it.
void synthesise_model(const SynthOptions& options, const std::function<void(const SynthProgress&)>& progress = {},
                      const Log& log = {});

}  // namespace flux2
