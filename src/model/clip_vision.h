#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/vit_layer.h"
#include "nn/linear.h"
#include "weights/weight_source.h"

namespace flux2 {

// The geometry of a CLIP vision tower, and how its images are prepared. The values are those of openai/clip-vit-large-patch14.
struct ClipConfig {
  int64_t hidden = 1024, intermediate = 4096, layers = 24, heads = 16;
  int64_t image = 224, patch = 14;  // pixels a side
  int64_t projection = 768;
  float eps = 1e-5f;
  bool quick_gelu = true;  // false: gelu, as in OpenCLIP's towers
  std::array<float, 3> mean = {0.48145466f, 0.4578275f, 0.40821073f}, deviation = {0.26862954f, 0.26130258f, 0.27577711f};

  int64_t patches() const { return (image / patch) * (image / patch); }
  int64_t head_dim() const { return hidden / heads; }
  VitLayerConfig layer() const;
  std::string name() const;  // "CLIP vision 224/14, 24 layers of width 1024, projection 768"
  bool operator==(const ClipConfig&) const = default;
};

// A tensor that only such files have; null if this is something else.
const StoredTensor* clip_sign(const WeightSource& weights);

// Reads the geometry off the tensors and off config.json and preprocessor_config.json beside them. A text tower in the same file
// is ignored. Throws Incompatible or BadFile, naming all tensors that are missing or have the wrong shape.
ClipConfig detect_clip(const WeightSource& weights);

struct ClipVision {
  explicit ClipVision(const ClipConfig& config);

  struct Features {
    Tensor pooled;     // F32 [hidden]: the class token behind the last norm
    Tensor projected;  // F32 [projection], which transformers calls image_embeds
  };
  // patches [N, patch · patch · 3]: normalised samples of the N patches, row by row; those of a patch by row, column and channel.
  Features operator()(const Tensor& patches) const;

  void visit(const ParameterVisitor& visitor);

  ClipConfig config;
  Tensor class_token;  // [hidden]
  Tensor patch_conv;   // [hidden, patch, patch, 3]
  Tensor positions;    // [1 + N, hidden]
  LayerNorm first;     // before the layers
  std::vector<VitLayer> layers;
  LayerNorm last;  // of the class token
  Linear projection;
};

// All weights in F32, in the mapped file if they are stored so.
ClipVision load_clip(const WeightSource& weights, const ClipConfig& config, Stream& stream);

}  // namespace flux2
