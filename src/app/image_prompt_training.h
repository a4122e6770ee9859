#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "app/context.h"
#include "app/training_data.h"
#include "engine/clip_encoder.h"
#include "pipeline/progress.h"
#include "train/data/training_set.h"
#include "train/trained_image_prompt.h"

namespace flux2 {

// The adapter that a run trains, from the header of its image encoder. Throws NotFound or Incompatible if that cannot be used.
ImagePromptConfig planned_image_prompt(const TrainOptions& options, const Flux2Config& transformer, const AppContext& context);

// Images to vectors while an image-prompt adapter is trained. The encoder is loaded; one thread may use it at a time.
class TrainingImageEncoder {
 public:
  TrainingImageEncoder(const TrainOptions& options, const Flux2Config& transformer, const AppContext& context);

  const ImagePromptConfig& config() const { return config_; }
  std::vector<float> of(const Image& image) const { return encoder_->feature(image, config_.feature); }

  // The vectors of the image prompts of a dataset of files. If a target is its own image prompt, it is prepared as for the
  // autoencoder: scaled to its bucket. Other image prompts are prepared as `generate` prepares them.
  ItemFeatures of_items(const TrainingSet& data, const TrainingDataset& dataset, const Progress& progress,
                        const AppContext& context) const;

 private:
  ImagePromptConfig config_;
  std::shared_ptr<const ClipEncoder> encoder_;
};

}  // namespace flux2
