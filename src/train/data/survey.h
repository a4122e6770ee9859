#pragma once

#include <cstdint>
#include <vector>

#include "base/limits.h"
#include "train/data/cache_names.h"
#include "train/data/dataset.h"

namespace flux2 {

// The images of a bucket that can share batches.
struct BucketCount {
  PixelSize size;
  std::vector<PixelSize> references;
  int64_t images = 0, batches = 0;  // batches of one epoch, repeats included
};

// What is known of a dataset once all its images have been read.
struct DatasetSurvey {
  std::vector<BucketCount> buckets;  // by width, height and references
  std::vector<Finding> findings;     // those of listing the dataset included

  int64_t images() const;
  int64_t batches() const;
  bool stops() const;  // whether training is not possible
};

// Reads every image, on several threads (0: all processors). Finds images that cannot be read or are tiny, references whose
// proportions differ from those of their image, and buckets that hold less than a batch.
DatasetSurvey survey_dataset(const Dataset& dataset, int threads = 0, const ImageLimits& limits = {});

}  // namespace flux2
