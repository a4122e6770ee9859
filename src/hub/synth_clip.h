#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "hub/synth.h"
#include "model/clip_vision.h"

namespace flux2 {

// The image encoders that can be synthesised: "clip-vit-large-patch14", and "clip-tiny", which encodes an image in a few
// milliseconds. Empty for other names.
std::optional<ClipConfig> synthetic_clip(std::string_view name);

struct RandomClipOptions {
  uint64_t seed = 0;
  DType dtype = DType::F32;  // or BF16
  std::function<void(const SynthProgress&)> progress;
};

// An image encoder with random weights, in the names of the published one: model.safetensors, config.json and
// preprocessor_config.json, which transformers reads as CLIPVisionModelWithProjection. The values are distributed as transformers
// initialises CLIP, so the vectors of different images differ. Needs little memory.
void write_random_clip(const std::filesystem::path& folder, const ClipConfig& config, const RandomClipOptions& options = {});

}  // namespace flux2
