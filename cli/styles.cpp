#include "cli/styles.h"

#include "base/error.h"
#include "base/text.h"
#include "cli/options.h"

namespace flux2 {

namespace {

constexpr std::string_view kPlace = "{prompt}";

const Styles& built_in_styles() {
  static const Styles styles = {
      {"3d", "{prompt}, 3D render, soft studio light, smooth materials, subtle ambient occlusion"},
      {"anime", "{prompt}, anime illustration, clean line art, cel shading, vivid colours"},
      {"cinematic",
       "{prompt}, cinematic film still, anamorphic lens, dramatic light, shallow depth of field, film grain"},
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

Styles all_styles(const ConfigFile& project, const ConfigFile& user) {
  Styles styles;
  constexpr std::string_view kSection = "styles.";
  for (const ConfigFile* file : {&project, &user})
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
    throw Error(ErrorCode::InvalidArgument, "there is no style \"" + name + "\"",
                (near.empty() ? "" : "did you mean " + near + "? ") + std::string("--style list shows them all"));
  }
  std::string text = style->second;
  const size_t place = text.find(kPlace);
  if (place == text.npos) return prompt + ", " + text;
  return text.replace(place, kPlace.size(), prompt);
}

}  // namespace flux2
