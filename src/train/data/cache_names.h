#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/buckets.h"
#include "train/data/cache_model.h"

// Names of cache files and of the tensors in them, as musubi-tuner has them.
namespace flux2 {

constexpr int64_t kLatentChannels = 128;

// Height and width of latents: 1/16 of those of the image.
struct LatentSize {
  int64_t rows = 0, columns = 0;

  int64_t tokens() const { return rows * columns; }
  auto operator<=>(const LatentSize&) const = default;
};
inline LatentSize latent_size(PixelSize size) { return {size.height / kBucketStep, size.width / kBucketStep}; }

// "cat_1920x1080_f2k4b.safetensors": the size is that of the original image, not of its bucket.
std::string latent_file_name(const std::string& stem, PixelSize original, const CacheModel& model);
std::string text_file_name(const std::string& stem, const CacheModel& model);  // "cat_f2k4b_te.safetensors"
std::string empty_text_file_name(const CacheModel& model);                     // of the empty caption; hidden from musubi-tuner

// What the name of a latent file says; none for other files.
struct LatentFileName {
  std::string stem;
  PixelSize original;
};
std::optional<LatentFileName> parse_latent_file_name(const std::string& name, const CacheModel& model);

// The names of all latent files, or of all text files, of a model in a folder, sorted. A folder that does not exist has none.
std::vector<std::string> latent_files(const std::filesystem::path& folder, const CacheModel& model);
std::vector<std::string> text_files(const std::filesystem::path& folder, const CacheModel& model);

// "latents_64x48_float32" → "latents"; "ctx_vec_bfloat16" → "ctx_vec". The name of a type is removed, and of latents the size.
std::string content_name(std::string_view key);
std::string without_dtype(std::string_view key);

}  // namespace flux2
