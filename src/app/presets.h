#pragma once

#include <map>
#include <string>

#include "app/context.h"
#include "hub/model_files.h"
#include "record/request_spec.h"

namespace flux2 {

// Prompt templates by name; {prompt} is where the prompt goes. The [styles] sections of configurations override the
// built-in templates, and those of the project override those of the user.
using Styles = std::map<std::string, std::string>;
Styles all_styles(const AppContext& context);

// Throws InvalidArgument, naming the nearest, for a style that does not exist.
std::string apply_style(const Styles& styles, const std::string& name, const std::string& prompt);

// "draft", "standard" or "best": the steps and the size that suit a model.
RequestSpec quality_preset(const std::string& name, const ModelFiles& model);

}  // namespace flux2
