#include "cli/quality.h"

#include <algorithm>

namespace flux2 {

SettingLayer quality_preset(const std::string& name, const ModelFiles& model) {
  const int level = name == "draft" ? 0 : name == "standard" ? 1 : 2;
  const ModelDefaults& defaults = model.defaults;
  int steps = 0;
  if (model.bundled) steps = std::max(1, defaults.steps * (level == 0 ? 1 : level == 1 ? 2 : 4) / 2);
  else if (model.distilled) steps = level == 2 ? 2 * defaults.steps : defaults.steps;
  else steps = level == 0 ? std::min(20, defaults.steps) : defaults.steps;

  SettingLayer layer;
  const auto set = [&](const char* option, int value) {
    layer[option] = {{std::to_string(value)}, "--preset " + name};
  };
  set("steps", steps);
  // A model made for small pictures has one good size.
  const bool halve = level == 0 && !model.bundled && defaults.width >= 512 && defaults.height >= 512;
  set("width", halve ? defaults.width / 2 : defaults.width);
  set("height", halve ? defaults.height / 2 : defaults.height);
  return layer;
}

}  // namespace flux2
