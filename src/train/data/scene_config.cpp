#include "train/data/scene_config.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

int64_t whole_number(const Json& value, int64_t low, int64_t high) {
  check(value.is_number_integer(), "must be a whole number");
  check(!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(high), "must be at most {}", high);
  const auto number = value.get<int64_t>();
  check(number >= low && number <= high, "must be between {} and {}", low, high);
  return number;
}

double share(const Json& value) {
  check(value.is_number(), "must be a number");
  const auto number = value.get<double>();
  check(number >= 0 && number <= 1, "must be between 0 and 1");
  return number;
}

struct SceneKey {
  const char* name;
  void (*read)(const Json& value, SceneConfig& config);
};

const std::vector<SceneKey>& scene_keys() {
  using C = SceneConfig;
  static const std::vector<SceneKey> keys = {
      {"seed", [](const Json& v, C& c) { c.seed = static_cast<uint64_t>(whole_number(v, 0, int64_t{1} << 53)); }},
      {"count", [](const Json& v, C& c) { c.count = whole_number(v, 1, 10'000'000); }},
      {"redraw", [](const Json& v, C& c) { c.redraw = whole_number(v, 0, 1'000'000); }},
      {"captions", [](const Json& v, C& c) { c.captions = whole_number(v, 1, 64); }},
      {"edit_share", [](const Json& v, C& c) { c.edit_share = share(v); }},
      {"two_reference_share", [](const Json& v, C& c) { c.two_reference_share = share(v); }},
      {"things",
       [](const Json& v, C& c) {
         check(v.is_string() && !v.get<std::string>().empty(), "must be the name of a PNG file in quotes");
         c.things = v.get<std::string>();
       }},
      {"thing_share", [](const Json& v, C& c) { c.thing_share = share(v); }},
      {"pattern_share", [](const Json& v, C& c) { c.pattern_share = share(v); }},
      {"some_share", [](const Json& v, C& c) { c.some_share = share(v); }},
      {"couple_share", [](const Json& v, C& c) { c.couple_share = share(v); }},
      {"free_colours", [](const Json& v, C& c) { c.free_colours = share(v); }},
  };
  return keys;
}

}  // namespace

SceneOptions SceneConfig::options(int sprites, double aspect) const {
  return {.things = sprites,
          .aspect = aspect,
          .thing_share = thing_share,
          .pattern_share = pattern_share,
          .some_share = some_share,
          .couple_share = couple_share,
          .free_colours = free_colours};
}

SceneConfig scene_config_in(const Json& table) {
  check(table.is_object(), "must be a table such as {{ count = 4096, things = \"things.png\" }}");
  SceneConfig config;
  std::vector<std::string> names;
  for (const SceneKey& key : scene_keys()) names.emplace_back(key.name);
  for (const auto& entry : table.items()) {
    const SceneKey* found = nullptr;
    for (const SceneKey& key : scene_keys())
      if (entry.key() == key.name) found = &key;
    const std::string near = nearest_word(entry.key(), names);
    check(found, "unknown key \"{}\"{}", printable(entry.key()), near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    in_context(entry.key(), [&] { found->read(entry.value(), config); });
  }
  check(config.edit_share + config.two_reference_share <= 1, "edit_share and two_reference_share are more than 1 together");
  check(config.some_share + config.couple_share <= 1, "some_share and couple_share are more than 1 together");
  return config;
}

}  // namespace flux2
