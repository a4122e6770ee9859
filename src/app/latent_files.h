#pragma once

#include <filesystem>

#include "base/log.h"
#include "pipeline/text_to_image.h"
#include "record/generation_record.h"
#include "record/picture_metadata.h"

namespace flux2 {

// Latents that were saved instead of an image, and what is known about the image they stand for.
struct SavedLatents {
  Tensor latents;  // [128, rows, columns], normalised, as the sampler left them
  GenerationRecord record;

  int width() const { return static_cast<int>(latents.dim(2)) * 16; }
  int height() const { return static_cast<int>(latents.dim(1)) * 16; }
};

// Writes a safetensors file as musubi-tuner does: the tensor "latent", and texts about the image, among them our own record.
// Returns false, and writes nothing, if the name is taken and may not be replaced.
bool save_latents(const std::filesystem::path& path, const Picture& picture, const GenerationRecord& record,
                  const MetadataChoice& metadata, bool may_replace = true);

// Reads such files, of musubi-tuner too, and those of `latents_out`. Throws Incompatible when there are no latents inside.
SavedLatents read_latents(const std::filesystem::path& path, const Log& log = {});

}  // namespace flux2
