#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/vit_layer.h"
#include "nn/linear.h"
#include "weights/weight_source.h"

namespace flux2 {

// The geometry of a ViT that classifies images, and how its images are prepared. The values are those of
// Falconsai/nsfw_image_detection.
struct VitConfig {
  int64_t hidden = 768, intermediate = 3072, layers = 12, heads = 12;
  int64_t image = 224, patch = 16;  // pixels a side; images are scaled to image × image, whatever their proportions
  float eps = 1e-12f;
  std::vector<std::string> labels = {"normal", "nsfw"};  // one for each class
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f}, deviation = {0.5f, 0.5f, 0.5f};

  int64_t patches() const { return (image / patch) * (image / patch); }
  int64_t head_dim() const { return hidden / heads; }
  int64_t label(const std::string& name) const;  // its class; −1: there is none
  VitLayerConfig layer() const { return {.hidden = hidden, .intermediate = intermediate, .heads = heads, .eps = eps}; }
  std::string name() const;  // "ViT 224/16, 12 layers of width 768, 2 classes"
  bool operator==(const VitConfig&) const = default;
};

// A tensor that only such files have; null if this is something else.
const StoredTensor* vit_sign(const WeightSource& weights);

// Reads the geometry off the tensors and off config.json and preprocessor_config.json beside them. Throws Incompatible or
// BadFile, naming all tensors that are missing or have the wrong shape.
VitConfig detect_vit(const WeightSource& weights);

struct VitClassifier {
  explicit VitClassifier(const VitConfig& config);

  // patches [N, patch · patch · 3]: normalised samples of the N patches, row by row; those of a patch by row, column and channel.
  // Returns the scores F32 [classes] before softmax.
  Tensor operator()(const Tensor& patches) const;

  void visit(const ParameterVisitor& visitor);

  VitConfig config;
  Tensor class_token;  // [1, 1, hidden]
  Tensor positions;    // [1, 1 + N, hidden]
  Tensor patch_conv;   // [hidden, patch, patch, 3]
  Tensor patch_bias;   // [hidden]
  std::vector<VitLayer> layers;
  LayerNorm norm;
  Linear classes;
};

// All weights in F32, in the mapped file if they are stored so.
VitClassifier load_vit(const WeightSource& weights, const VitConfig& config, Stream& stream);

}  // namespace flux2
