#include "cli/config_keys.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "cli/command.h"

namespace flux2 {

const std::vector<std::string>& config_keys() {
  static const std::vector<std::string> keys = [] {
    std::set<std::string> all = {"models.paths"};
    for (const Command& command : commands())
      for (const OptionGroup& group : command.options())
        for (const OptionSpec& option : group.options)
          if (!option.section.empty()) all.insert(option.section + "." + option.name);
    return std::vector<std::string>(all.begin(), all.end());
  }();
  return keys;
}

bool is_config_key(const std::string& key) {
  for (const char* open : {"styles.", "serve.", "sdapi.", "openai.", "train.", "safety."})
    if (key.starts_with(open)) return true;
  return std::binary_search(config_keys().begin(), config_keys().end(), key);
}

void warn_unknown_keys(const ConfigFile& file, const Log& log) {
  for (const auto& [key, values] : file.values) {
    if (is_config_key(key)) continue;
    const std::string near = nearest_word(key, config_keys());
    log.warn("{}: unknown key {}{}", file.path.string(), key, near.empty() ? "" : ", did you mean " + near + "?");
  }
}

}  // namespace flux2
