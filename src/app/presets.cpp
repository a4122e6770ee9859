#include "app/presets.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr std::string_view kPlace = "{prompt}";

const Styles& built_in_styles() {
  static const Styles styles = {
      {"3d", "{prompt}, 3D render, soft studio light, smooth materials, subtle ambient occlusion"},
      {"anime", "{prompt}, anime illustration, clean line art, cel shading, vivid colours"},
      {"cinematic", "{prompt}, cinematic film still, anamorphic lens, dramatic light, shallow depth of field, film grain"},
      {"isometric", "isometric view of {prompt}, small diorama, even light, plain background"},
      {"logo", "minimal flat vector logo of {prompt}, two colours, plain white background, centered"},
      {"oil", "oil painting of {prompt}, visible brush strokes, rich impasto, canvas texture"},
      {"photo", "photograph of {prompt}, natural light, 50 mm lens, sharp focus, true colours"},
      {"pixel", "{prompt}, 16-bit pixel art, limited palette, crisp pixels"},
      {"product", "product photograph of {prompt}, seamless background, softbox light, high detail"},
      {"sketch", "pencil sketch of {prompt}, graphite on paper, loose hatching"},
      {"watercolor", "watercolor painting of {prompt}, wet on wet, soft edges, paper texture"},
  };
  return styles;
}

}  // namespace

Styles all_styles(const AppContext& context) {
  Styles styles;
  constexpr std::string_view kSection = "styles.";
  for (const ConfigFile* file : {&context.project, &context.user})
    for (const auto& [key, values] : file->values)
      if (key.starts_with(kSection) && !values.empty()) styles.emplace(key.substr(kSection.size()), values.front());
  styles.insert(built_in_styles().begin(), built_in_styles().end());
  return styles;
}

std::string apply_style(const Styles& styles, const std::string& name, const std::string& prompt) {
  const auto style = styles.find(name);
  if (style == styles.end()) {
    std::vector<std::string> names;
    for (const auto& [known, text] : styles) names.push_back(known);
    const std::string near = nearest_word(name, names);
    throw Error(ErrorCode::InvalidArgument, "unknown style \"" + name + "\"",
                Hint((near.empty() ? "" : "did you mean " + near + "? ") + std::string("{0} shows them all"),
                     {set_option("style", "list")}));
  }
  std::string text = style->second;
  const size_t place = text.find(kPlace);
  if (place == text.npos) return prompt + ", " + text;
  return text.replace(place, kPlace.size(), prompt);
}

RequestSpec quality_preset(const std::string& name, const ModelFiles& model) {
  const int level = name == "draft" ? 0 : name == "standard" ? 1 : 2;
  const ModelDefaults& defaults = model.defaults;
  RequestSpec preset;
  if (model.bundled && !model.distilled) preset.steps = std::max(1, defaults.steps * (level == 0 ? 1 : level == 1 ? 2 : 4) / 2);
  else if (model.distilled) preset.steps = level == 2 ? 2 * defaults.steps : defaults.steps;
  else preset.steps = level == 0 ? std::min(20, defaults.steps) : defaults.steps;
  // A model made for small images has one good size.
  const bool halve = level == 0 && !model.bundled && defaults.width >= 512 && defaults.height >= 512;
  preset.width = halve ? defaults.width / 2 : defaults.width;
  preset.height = halve ? defaults.height / 2 : defaults.height;
  return preset;
}

}  // namespace flux2
