#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/settings.h"

namespace flux2 {

// A layer from words like -s 8 --noise grid --strict: what a front end would make of them.
inline SettingLayer layer_of_words(const std::vector<std::string>& words) {
  static const std::map<std::string, std::string> letters = {{"-i", "input"},    {"-r", "input"}, {"-s", "steps"},
                                                             {"-g", "guidance"}, {"-S", "seed"},  {"-n", "negative"},
                                                             {"-b", "batch"},    {"-W", "width"}};
  SettingLayer layer;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = letters.contains(words[i]) ? letters.at(words[i]) : words[i].substr(2);
    Setting& setting = layer[name];
    setting.origin = "--" + name;
    setting.values.push_back(field(name).type == FieldType::Flag ? "true" : words.at(++i));
  }
  return layer;
}

inline RequestSpec spec_of_words(const std::vector<std::string>& words) {
  Settings settings;
  settings.add(layer_of_words(words));
  return spec_of(settings);
}

}  // namespace flux2
