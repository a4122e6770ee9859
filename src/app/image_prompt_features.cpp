#include "app/image_prompt_features.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/clip_encoder.h"

namespace flux2 {

namespace {

constexpr size_t kMostKept = 256;  // vectors, a few kB each

// A file that was replaced is another encoder.
std::string key_of(const std::filesystem::path& file) {
  std::error_code unknown;
  const auto time = std::filesystem::last_write_time(file, unknown).time_since_epoch().count();
  return fmt::format("{} {} {}", file.string(), std::filesystem::file_size(file, unknown), time);
}

}  // namespace

ImagePromptFeatures::ImagePromptFeatures() = default;
ImagePromptFeatures::~ImagePromptFeatures() = default;

void ImagePromptFeatures::fill(const ImagePromptUse& use, Request& request, const Options& options) {
  require(use.images.size() == request.image_prompts.size(), "{} images for {} image prompts", use.images.size(),
          request.image_prompts.size());
  for (size_t i = 0; i < use.images.size(); ++i) {
    options.progress.check();
    request.image_prompts[i].feature = feature_of(use.images[i], use, options);
  }
}

const std::vector<float>& ImagePromptFeatures::feature_of(const GivenPicture& image, const ImagePromptUse& use,
                                                          const Options& options) {
  const std::string encoder = key_of(use.encoder);
  const std::string key = fmt::format("{} {} {}", image.record.sha256, static_cast<int>(use.feature), encoder);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().feature;
  }
  if (!encoder_ || encoder_key_ != encoder) {
    release();  // before another one takes memory
    encoder_ = std::make_unique<ClipEncoder>(use.encoder, options.threads, options.log);
    encoder_key_ = encoder;
    std::error_code unknown;
    encoder_bytes_ = static_cast<int64_t>(std::filesystem::file_size(use.encoder, unknown));
  }
  kept_.push_front({key, encoder_->feature(*image.image, use.feature)});
  ++computed_;
  if (kept_.size() > kMostKept) kept_.pop_back();
  return kept_.front().feature;
}

void ImagePromptFeatures::release() {
  encoder_.reset();
  encoder_bytes_ = 0;
}

int64_t ImagePromptFeatures::held_bytes() const { return encoder_bytes_; }

}  // namespace flux2
