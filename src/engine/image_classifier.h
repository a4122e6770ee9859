#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "image/image.h"
#include "model/vit_classifier.h"

namespace flux2 {

// An image as the classifier gets it: [patches, patch · patch · 3]. Transparency is dropped, the image is scaled to a square with
// Pillow's bilinear filter, and samples are normalised.
std::vector<float> classifier_patches(const Image& image, const VitConfig& config);

// A classifier of images on the CPU, in f32. It takes about 35 GFLOP for an image of a ViT-B/16. One thread uses it at a time.
class ImageClassifier {
 public:
  explicit ImageClassifier(const std::filesystem::path& file, int threads = 0, const Log& log = {});

  const VitConfig& config() const { return network_.config; }
  std::vector<double> logits(const Image& image) const;
  double probability(const Image& image, int64_t label) const;  // of one class, after softmax

 private:
  Engine engine_;
  std::shared_ptr<Stream> stream_;
  VitClassifier network_;
};

}  // namespace flux2
