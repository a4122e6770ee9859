#pragma once

#include "app/context.h"
#include "app/encoder_training.h"
#include "app/image_prompt_training.h"
#include "app/training_data.h"
#include "engine/engine.h"
#include "pipeline/progress.h"
#include "train/data/training_set.h"

namespace flux2 {

// The drawn scenes of a dataset, encoded with the model's autoencoder on a stream of its own. Nothing is drawn yet. The set keeps
// the autoencoder and, if there is one, the image encoder.
TrainingSet open_scenes(const TrainingDataset& dataset, const EngineOptions& engine, const EncoderTraining& text,
                        const std::shared_ptr<const TrainingImageEncoder>& image_prompts, const Progress& progress,
                        const AppContext& context);

}  // namespace flux2
