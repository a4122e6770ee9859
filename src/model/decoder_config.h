#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weights/named_weights.h"

namespace flux2 {

// The language models that FLUX.2 reads prompts with: Qwen3 (klein) and Mistral Small 3 (dev). Both are stacks of the same layer;
// Qwen3 normalises queries and keys, Mistral does not.
enum class DecoderFamily { Qwen3, Mistral };
const char* name_of(DecoderFamily family);

// The geometry of such a stack and which of its states FLUX.2 reads.
struct DecoderConfig {
  DecoderFamily family = DecoderFamily::Qwen3;
  int64_t vocab = 151936;
  int64_t hidden = 2560;
  int64_t intermediate = 9728;
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
  int64_t layers = 36;  // in the file; a text encoder loads only those up to the last state read
  float norm_eps = 1e-6f;
  double rope_theta = 1e6;
  std::vector<int> states = {9, 18, 27};  // residual stream after so many layers

  bool normalises_heads() const { return family == DecoderFamily::Qwen3; }
  int64_t layers_needed() const { return states.back(); }
  int64_t output_width() const { return hidden * static_cast<int64_t>(states.size()); }
  bool operator==(const DecoderConfig&) const = default;
};

DecoderConfig mistral_small_config();  // Mistral-Small-3.x-24B, as dev reads it

// Whose language model it is; nothing if it is neither of these two, or no language model.
std::optional<DecoderFamily> decoder_family(const NamedWeights& weights);

// Reads the geometry off the tensors, then off what describes them: the metadata of a GGUF file, or config.json (or Mistral's
// params.json) beside the weights. Where nothing says otherwise, theta, eps and Mistral's width of a head are those of the
// published model.
// Throws Incompatible, naming what the file is, when it is another kind of language model.
DecoderConfig detect_decoder(const NamedWeights& weights);

}  // namespace flux2
