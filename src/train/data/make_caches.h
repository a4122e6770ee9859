#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "tensor/dtype.h"
#include "train/data/cache_state.h"
#include "train/data/dataset.h"

namespace flux2 {

// Samples [3, height, width] of −1 … 1 → latents [128, height/16, width/16].
using EncodeTrainingImage = std::function<std::vector<float>(int width, int height, const std::vector<float>& planes)>;
// Texts → their states [T, C].
using EncodeTexts = std::function<std::vector<std::vector<float>>(const std::vector<std::string>& texts)>;
// Called when `done` of `total` items are finished. It may throw to stop.
using CacheProgress = std::function<void(int64_t done, int64_t total)>;

struct CacheOptions {
  bool everything = false;     // also what is up to date
  bool keep_cache = false;     // the caller does not want remove_foreign_caches()
  bool skip_existing = false;  // keep every file that fits, even if its image or caption has changed
  bool any_form = false;       // keep latents of any type, and any number of orders of a caption's tags above one
  int workers = 0;             // threads that read and scale images; 0: one less than the processor has
  int64_t text_batch = 1;      // texts that are encoded together
  std::string encoder;         // which encoder makes the values; a change makes files out of date
  DType latent_dtype = DType::F32, text_dtype = DType::BF16;  // of the values: F32, BF16 or F16
  ImageLimits limits;
  Log log;
};

// Cache files that have to be made, each for one item of one dataset.
struct CacheTask {
  size_t dataset = 0, item = 0;
  bool empty_caption = false;  // the file of the empty caption, which belongs to no item
};

// What is not up to date.
std::vector<CacheTask> latent_tasks(const std::vector<Dataset>& datasets, const CacheModel& model, const CacheOptions& options);
std::vector<CacheTask> text_tasks(const std::vector<Dataset>& datasets, const CacheModel& model, const CacheOptions& options);

// Makes the files. Each is complete or does not exist, so a run that is stopped can be continued.
void make_latent_caches(const std::vector<Dataset>& datasets, const std::vector<CacheTask>& tasks, const CacheModel& model,
                        const EncodeTrainingImage& encode, const CacheOptions& options, const CacheProgress& progress = {});
void make_text_caches(const std::vector<Dataset>& datasets, const std::vector<CacheTask>& tasks, const CacheModel& model,
                      const EncodeTexts& encode, const CacheOptions& options, const CacheProgress& progress = {});

// Deletes the model's latent and text files in the cache folders that belong to no item. Returns how many.
int64_t remove_foreign_caches(const std::vector<Dataset>& datasets, const CacheModel& model, const Log& log = {});

}  // namespace flux2
