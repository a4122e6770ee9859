#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "tensor/dtype.h"
#include "train/data/cache_model.h"

namespace flux2 {

// What the text file of an image holds: for every text of its caption the states [T, C].
struct CaptionCache {
  std::vector<std::string> captions;  // one, or several variants
  std::vector<std::vector<float>> states;
  std::map<std::string, std::string> notes;  // metadata of ours, by names that begin with "flux2."
};

struct CaptionSummary {
  std::string caption;   // the first
  int64_t variants = 0;  // 0: one caption
  std::map<std::string, std::string> metadata;
};

// Writes a file as musubi-tuner does. If it exists, its other tensors and metadata are kept; one of another model is refused.
// NaNs are replaced by 0, with a warning.
void write_caption_cache(const std::filesystem::path& path, CaptionCache cache, const CacheModel& model,
                         DType dtype = DType::BF16, const Log& log = {});

// Both throw BadFile, naming the file, for what is damaged or incomplete, and Incompatible if it belongs to another model.
CaptionSummary read_caption_summary(const std::filesystem::path& path, const CacheModel& model);

// Reads the states of a variant, [T, C], into `out`.
void read_caption_states(const std::filesystem::path& path, const CacheModel& model, int64_t variant, float* out);

// A hash over all texts of a caption: it tells whether a file was made for them.
std::string captions_hash(const std::vector<std::string>& captions);

}  // namespace flux2
