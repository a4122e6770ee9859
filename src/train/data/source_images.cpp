#include "train/data/source_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "image/mask.h"
#include "image/read_image.h"
#include "train/data/cache_names.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// Colours are taken as they are stored: musubi-tuner does not use colour profiles.
Image read_source(const fs::path& path, bool upright, const ImageLimits& limits, const Log& log) {
  return read_image(path, {.apply_orientation = upright, .to_srgb = false, .limits = limits, .log = log});
}

Image alpha_plane(const Image& rgba) {
  Image plane(rgba.width, rgba.height, 1);
  for (size_t i = 0; i < plane.pixels.size(); ++i) plane.pixels[i] = rgba.pixels[4 * i + 3];
  return plane;
}

double aspect_of(const Image& image) { return static_cast<double>(image.width) / image.height; }

PixelSize size_of(const Image& image) { return {image.width, image.height}; }

void check_side(PixelSize bucket, const fs::path& path, const Image& image) {
  check(bucket.width > 0 && bucket.height > 0, "{} is too small: {}×{} pixels, both sides must have at least 16", path.string(),
        image.width, image.height);
}

// The mean of each 16×16 pixels.
std::vector<float> latent_mask(const Image& mask, PixelSize bucket) {
  const Image fitted = fit_to_bucket(mask, bucket);
  const auto step = static_cast<int>(kBucketStep);
  std::vector<float> weights;
  for (int row = 0; row < fitted.height / step; ++row)
    for (int column = 0; column < fitted.width / step; ++column) {
      int sum = 0;
      for (int y = 0; y < step; ++y)
        for (int x = 0; x < step; ++x) sum += *fitted.at(column * step + x, row * step + y);
      weights.push_back(static_cast<float>(sum) / static_cast<float>(255 * step * step));
    }
  return weights;
}

}  // namespace

SourceImages read_sources(const DatasetConfig& config, const DatasetItem& item, const ImageLimits& limits, const Log& log) {
  SourceImages sources;
  sources.target = read_source(item.image, config.exif, limits, log);
  for (const fs::path& path : item.references) sources.references.push_back(read_source(path, config.exif, limits, log));
  if (!item.mask.empty()) {
    sources.mask = luminance(to_rgb(read_source(item.mask, config.exif, limits, log), AlphaRule::Drop));
    const double ratio = aspect_of(sources.mask) / aspect_of(sources.target);
    check(std::abs(std::log(ratio)) < 0.02, "the mask {} has {}×{} pixels, its image {}×{}: they must have the same proportions",
          item.mask.string(), sources.mask.width, sources.mask.height, sources.target.width, sources.target.height);
  } else if (config.alpha_mask && sources.target.channels == 4) {
    sources.mask = alpha_plane(sources.target);
  }
  return sources;
}

PixelSize reference_size(const DatasetConfig& config, PixelSize reference, PixelSize bucket) {
  if (config.no_resize_control) {
    const bool fits = !config.control_resolution || reference.area() <= config.control_resolution->area();
    // musubi-tuner forgets to round in one of these cases and then fails.
    return fits ? on_bucket_grid(reference) : free_bucket(reference, *config.control_resolution);
  }
  return config.control_resolution ? free_bucket(reference, *config.control_resolution) : bucket;
}

ItemSizes item_sizes(const DatasetConfig& config, const DatasetItem& item, const SourceImages& sources) {
  const Buckets buckets(config.resolution, {config.enable_bucket, config.bucket_no_upscale});
  ItemSizes sizes;
  sizes.original = size_of(sources.target);
  sizes.bucket = buckets.of(sizes.original);
  check_side(sizes.bucket, item.image, sources.target);
  for (size_t i = 0; i < sources.references.size(); ++i) {
    const Image& reference = sources.references[i];
    sizes.references.push_back(
        in_context(item.references[i].string(), [&] { return reference_size(config, size_of(reference), sizes.bucket); }));
    check_side(sizes.references.back(), item.references[i], reference);
  }
  return sizes;
}

PreparedItem prepare_item(const DatasetConfig& config, const DatasetItem& item, const SourceImages& sources) {
  const ItemSizes sizes = item_sizes(config, item, sources);
  PreparedItem prepared;
  prepared.original = sizes.original;
  prepared.bucket = sizes.bucket;
  prepared.target = fit_to_bucket(sources.target, sizes.bucket);
  for (size_t i = 0; i < sources.references.size(); ++i)
    prepared.references.push_back(fit_to_bucket(sources.references[i], sizes.references[i]));
  if (!sources.mask.pixels.empty()) prepared.mask = latent_mask(sources.mask, sizes.bucket);
  else if (config.has_masks()) prepared.mask.assign(static_cast<size_t>(latent_size(sizes.bucket).tokens()), 1.0f);
  return prepared;
}

std::vector<float> training_planes(const Image& rgb) {
  require(rgb.channels == 3, "training_planes: the image has {} channels", rgb.channels);
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 127.5f - 1.0f;
  const size_t plane = rgb.pixels.size() / 3;
  std::vector<float> samples(rgb.pixels.size());
  for (size_t i = 0; i < plane; ++i)
    for (size_t c = 0; c < 3; ++c) samples[c * plane + i] = values[rgb.pixels[3 * i + c]];
  return samples;
}

Image mirrored(const Image& image) {
  Image result(image.width, image.height, image.channels);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) std::copy_n(image.at(x, y), image.channels, result.at(image.width - 1 - x, y));
  return result;
}

}  // namespace flux2
