#include "engine/clip_encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "image/resize.h"
#include "image/vision_prep.h"

namespace flux2 {

namespace {

ClipVision load_tower(const std::filesystem::path& file, Stream& stream, const Log& log) {
  return in_context("loading the image encoder", [&] {
    const auto weights = open_weights(file, log);
    return load_clip(*weights, detect_clip(*weights), stream);
  });
}

}  // namespace

std::vector<float> clip_patches(const Image& image, const ClipConfig& c) {
  check(image.width > 0 && image.height > 0, "an image prompt must have at least one pixel");
  // As transformers computes it: the longer side is not rounded but cut off.
  const int64_t shorter = std::min(image.width, image.height), longer = std::max(image.width, image.height);
  const auto scaled = static_cast<int64_t>(static_cast<double>(c.image * longer) / static_cast<double>(shorter));
  const bool wide = image.width > image.height;
  const Image square = resize_middle_to_rgb(
      image, AlphaRule::Drop,
      {.width = wide ? scaled : c.image, .height = wide ? c.image : scaled, .side = static_cast<int>(c.image)},
      ResizeFilter::Bicubic);
  SampleScale scale;
  for (size_t k = 0; k < 3; ++k) scale.mean[k] = c.mean[k], scale.deviation[k] = c.deviation[k];
  return vision_patches(square, static_cast<int>(c.patch), scale);
}

ClipEncoder::ClipEncoder(const std::filesystem::path& file, int threads, const Log& log)
    : engine_({.device = "cpu", .threads = threads, .profile = Profile::Exact, .log = log}),
      stream_(engine_.device().open_stream()),
      network_(load_tower(file, *stream_, log)) {}

int64_t ClipEncoder::width(ImageFeature feature) const {
  return feature == ImageFeature::Pooled ? config().hidden : config().projection;
}

std::vector<float> ClipEncoder::feature(const Image& image, ImageFeature wanted) const {
  const ClipConfig& c = config();
  const std::vector<float> values = clip_patches(image, c);
  const ClipVision::Features made =
      network_(Tensor::from<float>(*stream_, DType::F32, {c.patches(), c.patch * c.patch * 3}, values));
  const std::vector<double> wide = (wanted == ImageFeature::Pooled ? made.pooled : made.projected).to_doubles();
  // Numbers from a damaged file would spread over the whole image.
  if (!std::all_of(wide.begin(), wide.end(), [](double v) { return std::isfinite(v); }))
    fail(ErrorCode::BadFile, "the image encoder computed values that are no numbers; its file is damaged");
  return {wide.begin(), wide.end()};
}

}  // namespace flux2
