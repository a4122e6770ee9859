#pragma once

#include <string>

#include "cli/settings.h"
#include "hub/model_files.h"

namespace flux2 {

// What --preset draft, standard or best means for a model: steps and, where the model allows a choice, the size.
SettingLayer quality_preset(const std::string& name, const ModelFiles& model);

}  // namespace flux2
