#pragma once

#include "app/training.h"
#include "hub/model_files.h"
#include "model/flux2_config.h"

namespace flux2 {

// Trains the autoencoder of a model on the images of a dataset; the other networks are not loaded. `options` are complete.
TrainingResult train_autoencoder(const RequestSpec& spec, const TrainOptions& options, const ModelFiles& files,
                                 const Flux2Config& config, const AppContext& context, const TrainingFrontEnd& front,
                                 const std::optional<RankPlace>& place);

// Throws OutOfMemory unless weights, gradients, optimiser and average of so many trained parameters fit into the memory of the
// device, before anything is loaded. `part` names them in the message.
void check_training_memory(const std::string& part, int64_t parameters, const TrainOptions& options, const Engine& engine);

}  // namespace flux2
