#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/config_file.h"

namespace flux2 {

// A value and where it was set, as messages name it: "--steps", "FLUX2_STEPS", "generate.steps in flux2.toml".
struct Setting {
  std::vector<std::string> values;
  std::string origin;
};
using SettingLayer = std::map<std::string, Setting>;  // by long option name

using GetEnv = std::function<const char*(const char*)>;

// The values of options from all the places that may set them; the first layer that has one wins.
class Settings {
 public:
  // In every layer `size` and `dir` are turned into the options they stand for, so that a size in a higher layer
  // beats a width in a lower one.
  void add(SettingLayer layer);
  // Right below the layer that sets `name`: what that option stands for beats everything its own layer beats.
  void add_below(std::string_view name, SettingLayer layer);

  // Right below what was said on the command line, the first layer.
  void add_below_first(SettingLayer layer);

  // A copy with a layer above all others.
  Settings with(SettingLayer top) const;

  const Setting* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Typed access. A value that does not fit is an InvalidArgument that names its origin and what would fit.
  bool flag(std::string_view name) const;
  int count(std::string_view name) const;  // how often a flag is given
  std::string text(std::string_view name, std::string fallback = {}) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  std::string choice(std::string_view name, const std::vector<std::string>& allowed, std::string fallback) const;

 private:
  std::vector<SettingLayer> layers_;
};

SettingLayer layer_of(const Arguments& arguments);
SettingLayer layer_of_environment(const std::vector<OptionGroup>& options, const GetEnv& environment);
SettingLayer layer_of_file(const std::vector<OptionGroup>& options, const ConfigFile& file);

std::string environment_name(std::string_view option);  // "steps" → "FLUX2_STEPS"

}  // namespace flux2
