#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "tensor/dtype.h"
#include "train/data/cache_names.h"

namespace flux2 {

struct Latents {
  LatentSize size;
  std::vector<float> values;  // [128, rows, columns]
};

// What the latent file of an image holds.
struct LatentCache {
  PixelSize original;  // of the image, before it was brought to its bucket
  Latents target;
  std::vector<Latents> references;
  // Of the mirrored images; empty without flip_aug.
  Latents flipped;
  std::vector<Latents> flipped_references;
  std::vector<float> mask;                   // [rows, columns] of the target, 0 … 1; empty: none
  std::map<std::string, std::string> notes;  // metadata of ours, by names that begin with "flux2."
};

// The same without the values, from the header of a file.
struct LatentSummary {
  PixelSize original;
  LatentSize target;
  std::vector<LatentSize> references;
  bool has_flip = false, has_mask = false;
  std::map<std::string, std::string> metadata;
};

// Writes a file as musubi-tuner does; what it does not know has names that it does not read. `dtype` is F32, BF16 or F16. NaNs
// are replaced by 0, with a warning.
void write_latent_cache(const std::filesystem::path& path, LatentCache cache, const CacheModel& model, DType dtype = DType::F32,
                        const Log& log = {});

// Both throw BadFile, naming the file, for what is damaged or incomplete, and Incompatible if it belongs to another model.
LatentSummary read_latent_summary(const std::filesystem::path& path, const CacheModel& model);

// One of the two sides: as the image is, or mirrored, without the other.
LatentCache read_latent_cache(const std::filesystem::path& path, const CacheModel& model, bool flipped = false);

// "float32", "bfloat16", "float16"
const char* torch_name(DType dtype);

}  // namespace flux2
