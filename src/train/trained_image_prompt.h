#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/flux2_transformer.h"
#include "model/image_prompt.h"
#include "train/data/training_set.h"
#include "train/train_options.h"
#include "train/trained_model.h"

namespace flux2 {

// The adapter that a run with kind image_prompt trains, for vectors of this width.
ImagePromptConfig image_prompt_config(const TrainOptions& options, const Flux2Config& transformer, int64_t feature_width);

// What the vectors of a dataset are like: their mean and deviation by element.
struct FeatureStatistics {
  std::vector<float> mean, deviation;  // [F]; empty: 0 and 1
};

// Measured over the first samples of a run. Elements that hardly differ get the deviation of others, so that noise is not
// enlarged.
FeatureStatistics feature_statistics(const TrainingSet& data, uint64_t seed);
FeatureStatistics feature_statistics(const std::vector<float>& vectors, int64_t width);  // of vectors [N, F]

// An image-prompt adapter that is trained on a frozen transformer. It is not attached to layers: its outputs are further inputs
// of the transformer.
//
// It starts as follows. The projector and the keys have the values that nn.Linear of PyTorch starts with, and the norm has weight
// 1 and bias 0. The values (v_proj) are 0, so that the decoupled form begins as the base. In the first step only they
// have a gradient, as the second matrix of a LoRA. The tokens of the other form are seen from the first step on.
//
// Vectors of CLIP have a large part that is the same for all images. While it is trained, the projector therefore works on
// vectors from which their mean is subtracted and that are divided by their deviation. Saved files contain the same function of
// the vectors as they are: weight / deviation, and bias − weight · mean / deviation.
class TrainedImagePrompt final : public TrainedModel {
 public:
  TrainedImagePrompt(const ImagePromptConfig& config, Stream& stream, DType activations, uint64_t seed,
                     FeatureStatistics statistics = {});

  const ImagePromptConfig& config() const { return network_.config; }

  // What the transformer gets for vectors [B, F] of an image encoder, at strength 1.
  ImagePromptInputs inputs(const Tensor& features) const;

  // A copy with the present values, without gradients. Later steps do not change it.
  ImagePromptNetwork plain() const;

  // Starts from a file. Throws Incompatible if it has another geometry.
  void start_from(const std::filesystem::path& file, const Log& log);

  size_t modules() const override { return 2 + 2 * network_.blocks.size(); }
  NormReport limit_norms(double limit) override;
  std::vector<std::pair<std::string, Tensor>> tensors() const override;
  // The leaves as they are, with the statistics, which a resumed run takes over.
  std::vector<std::pair<std::string, Tensor>> state_tensors() const override;
  void restore_statistics(const std::map<std::string, Tensor>& values);
  void attach_for_sampling(Flux2Transformer&) const override {}  // see plain()

 private:
  ImagePromptNetwork network_;  // its tensors are the leaves
  DType activations_;
  FeatureStatistics statistics_;
};

}  // namespace flux2
