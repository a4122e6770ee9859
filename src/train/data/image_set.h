#pragma once

#include <cstdint>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "train/data/training_set.h"

namespace flux2 {

struct ImageSetOptions {
  int64_t crop = 0;                       // side of the random square of each visit; 0: the whole image of its bucket
  uint64_t seed = 0;                      // of the squares
  int64_t kept_bytes = int64_t{2} << 30;  // decoded images that stay in memory
  int threads = 0;                        // that read the images at the start; 0: all processors
  ImageLimits limits = {};
  Log log = {};
};

// The images of datasets themselves, for training an autoencoder: LoadedBatch::pixels. Captions, references and masks are not
// read. Throws InvalidArgument, naming the file, if an image cannot be read or is smaller than the square.
TrainingSet image_training_set(std::vector<DatasetConfig> datasets, const CacheModel& model, const ImageSetOptions& options);

}  // namespace flux2
