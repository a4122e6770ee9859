#pragma once

#include "base/json.h"
#include "hub/synth.h"

namespace flux2 {

// A model of one's own, described by a small table:
//   { "name": "pico", "transformer": {"hidden", "double_blocks", "single_blocks"}, "autoencoder": {"width", "norm_groups"},
//     "text_encoder": {"vocabulary", "hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "states"},
//     "defaults": {"steps", "guidance", "width", "height", "text_length", "sizes"} }
// Everything is optional; what is missing is as in the bundled model. The result is a base model in our own layout: its weights
// are random, and training from scratch replaces them. Throws InvalidArgument, naming the key, for unknown keys and impossible
// values.
SynthOptions model_from_description(const Json& description);

}  // namespace flux2
