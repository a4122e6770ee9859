#pragma once

#include <optional>
#include <string>

#include "hub/synth.h"
#include "hub/variants.h"
#include "model/decoder_config.h"
#include "model/vae_config.h"
#include "tensor/dtype.h"

namespace flux2 {

// The geometry and defaults of a synthetic model, from which its weights and configuration files are generated.
struct SynthModel {
  std::string name;
  Flux2Config transformer;
  VaeConfig vae;
  std::optional<DecoderConfig> text_encoder;
  ModelDefaults defaults;
  std::vector<std::pair<int, int>> sizes;
  bool distilled = true;
  DType dtype = DType::BF16;
};

// The variant with its changes applied; InvalidArgument when it is unknown or its parts do not fit together.
SynthModel model_of(const SynthOptions& options);

}  // namespace flux2
