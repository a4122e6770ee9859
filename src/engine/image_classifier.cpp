#include "engine/image_classifier.h"

#include <algorithm>
#include <cmath>

#include "image/resize.h"

namespace flux2 {

namespace {

VitClassifier load_classifier(const std::filesystem::path& file, Stream& stream, const Log& log) {
  return in_context("loading the image classifier", [&] {
    const auto weights = open_weights(file, log);
    return load_vit(*weights, detect_vit(*weights), stream);
  });
}

}  // namespace

std::vector<float> classifier_patches(const Image& image, const VitConfig& c) {
  const int side = static_cast<int>(c.image), patch = static_cast<int>(c.patch);
  const Image square = resize_to_rgb(image, AlphaRule::Drop, side, side, ResizeFilter::Bilinear);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  for (int top = 0; top < side; top += patch)
    for (int left = 0; left < side; left += patch)
      for (int y = top; y < top + patch; ++y)
        for (int x = left; x < left + patch; ++x)
          for (size_t k = 0; k < 3; ++k)
            values.push_back((static_cast<float>(square.at(x, y)[k]) / 255.0f - c.mean[k]) / c.deviation[k]);
  return values;
}

ImageClassifier::ImageClassifier(const std::filesystem::path& file, int threads, const Log& log)
    : engine_({.device = "cpu", .threads = threads, .profile = Profile::Exact, .log = log}),
      stream_(engine_.device().open_stream()),
      network_(load_classifier(file, *stream_, log)) {}

std::vector<double> ImageClassifier::logits(const Image& image) const {
  const VitConfig& c = network_.config;
  const std::vector<float> values = classifier_patches(image, c);
  return network_(Tensor::from<float>(*stream_, DType::F32, {c.patches(), c.patch * c.patch * 3}, values)).to_doubles();
}

double ImageClassifier::probability(const Image& image, int64_t label) const {
  const std::vector<double> scores = logits(image);
  require(label >= 0 && label < static_cast<int64_t>(scores.size()), "class {} of {}", label, scores.size());
  const double largest = *std::max_element(scores.begin(), scores.end());
  // A score that is no number would count as "not greater than the threshold".
  if (!std::all_of(scores.begin(), scores.end(), [](double score) { return std::isfinite(score); }))
    fail(ErrorCode::BadFile, "the image classifier computed values that are no numbers; its file is damaged");
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  return std::exp(scores[static_cast<size_t>(label)] - largest) / sum;
}

}  // namespace flux2
