#pragma once

#include <string>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "image/image.h"
#include "train/data/dataset.h"

namespace flux2 {

// The images of one item, ready for the autoencoder.
struct PreparedItem {
  PixelSize original, bucket;
  Image target;  // RGB, of the size of the bucket
  std::vector<Image> references;
  std::vector<float> mask;  // [rows, columns] of the latents, 0 … 1; empty without masks
};

// The images as they are in their files, upright.
struct SourceImages {
  Image target;
  std::vector<Image> references;
  Image mask;  // one channel; without pixels: everything counts
};
SourceImages read_sources(const DatasetConfig& config, const DatasetItem& item, const ImageLimits& limits = {},
                          const Log& log = {});

// The sizes that the images of an item get. Throws InvalidArgument, naming the file, if an image is too small.
struct ItemSizes {
  PixelSize original, bucket;
  std::vector<PixelSize> references;
};
ItemSizes item_sizes(const DatasetConfig& config, const DatasetItem& item, const SourceImages& sources);

// Brings the images to their sizes.
PreparedItem prepare_item(const DatasetConfig& config, const DatasetItem& item, const SourceImages& sources);

// The size that a reference gets beside a target of this bucket.
PixelSize reference_size(const DatasetConfig& config, PixelSize reference, PixelSize bucket);

// Samples [3, height, width] as u8/127.5 − 1, the input of the autoencoder in training.
std::vector<float> training_planes(const Image& rgb);
Image mirrored(const Image& image);  // left and right exchanged

}  // namespace flux2
