#pragma once

#include <string>
#include <vector>

#include "model/flux2_blocks.h"
#include "model/vit_layer.h"
#include "weights/weight_source.h"

namespace flux2 {

// How an image prompt reaches the transformer.
enum class ImagePromptForm {
  Tokens,     // as additional tokens of the image stream, to which all other tokens attend
  Decoupled,  // by a separate attention in every double block, whose result is added to the target's tokens
};

// Which vector of the image encoder is read.
enum class ImageFeature { Pooled, Projected };

// The geometry of an image-prompt adapter: a small network between an image encoder (model/clip_vision.h) and the transformer.
struct ImagePromptConfig {
  int64_t feature_width = 1024;  // of the encoder's vector
  int64_t hidden = 3072;         // of the transformer
  int64_t tokens = 4;            // for each image
  int64_t double_blocks = 0;     // of the transformer, for the decoupled form
  ImagePromptForm form = ImagePromptForm::Tokens;
  ImageFeature feature = ImageFeature::Pooled;
  std::string encoder = "clip-vit-large-patch14";

  std::string metadata() const;  // JSON, stored in files under kImagePromptMetadata
  std::string name() const;      // "image prompt of 4 tokens, decoupled, for a width of 3072"
  bool operator==(const ImagePromptConfig&) const = default;
};
inline constexpr const char* kImagePromptMetadata = "flux2.image_prompt";

// A tensor by which image-prompt adapters are recognised; null if there is none. Adapters for FLUX.1 have other tensors, see
// flux1_image_prompt().
const StoredTensor* image_prompt_sign(const WeightSource& weights);

// "an IP-Adapter for FLUX.1" or "FLUX.1 Redux"; empty for other files. FLUX.2 cannot use them.
std::string flux1_image_prompt(const WeightSource& weights);

// Reads the geometry from the tensors and the metadata. Throws Incompatible or BadFile, naming the tensors that are missing, that
// have the wrong shape, or that do not belong here.
ImagePromptConfig detect_image_prompt(const WeightSource& weights);

// Throws Incompatible if the adapter was made for another transformer.
void check_image_prompt(const ImagePromptConfig& adapter, const Flux2Config& transformer);

struct ImagePromptNetwork {
  explicit ImagePromptNetwork(const ImagePromptConfig& config);

  // Vectors of the encoder [B, F] → tokens [B, tokens, H].
  Tensor tokens(const Tensor& features) const;

  // The decoupled form: keys and values [B, P, heads, 128] of tokens [B, P, H] in each double block.
  std::vector<KeyValue> keys(const Tensor& tokens) const;

  void visit(const ParameterVisitor& visitor);

  struct BlockKeys {
    Linear k, v;  // [H, H], no bias
  };

  ImagePromptConfig config;
  Linear proj;  // [tokens · H, F] and a bias
  LayerNorm norm;
  std::vector<BlockKeys> blocks;  // of the decoupled form
};

// The weights in `dtype`.
ImagePromptNetwork load_image_prompt(const WeightSource& weights, const ImagePromptConfig& config, Stream& stream, DType dtype);

}  // namespace flux2
