#pragma once

#include <map>
#include <string>

#include "app/context.h"
#include "hub/model_files.h"
#include "record/request_spec.h"

namespace flux2 {

// What to look for: the fields of a request that choose a model, with the environment and the configuration.
ModelQuery model_query(const RequestSpec& spec, const AppContext& context);

// The licence of a model: what the registry knows of its file, else that of the published model. Empty when nobody knows.
std::string licence_of(const ModelFiles& model, const AppContext& context);

// A cache of located models, so that many requests search for each model only once.
using FoundModels = std::map<std::string, ModelFiles>;

// Finds the files of the model that a request asks for.
ModelFiles choose_model(const RequestSpec& spec, const AppContext& context, FoundModels* found = nullptr);

// The same for training. If none is named, the bundled model with guidance is used instead of the distilled one.
ModelFiles choose_model_to_train(const RequestSpec& spec, const AppContext& context);

}  // namespace flux2
