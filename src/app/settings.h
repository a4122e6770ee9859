#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/config_file.h"
#include "app/context.h"
#include "record/request_fields.h"

namespace flux2 {

// A value as the user wrote it, and where: "--steps", "FLUX2_STEPS", "generate.steps in flux2.toml". Without values, the option
// is not set, whatever the layers below say.
struct Setting {
  std::vector<std::string> values;
  std::string origin;
  bool is_default = false;  // from the environment, a configuration file or a preset, not from the request itself
  bool names_only = false;  // from a file of somebody else: it may contain a name, but no path
};
using SettingLayer = std::map<std::string, Setting>;  // by option name, with dashes

// The values of options from every place that may set them; the first layer that has one wins. RequestSpec is its typed form.
class Settings {
 public:
  // In every layer, `size` and `dir` are replaced with the options they stand for, so that a size in a higher layer overrides a
  // width in a lower one.
  void add(SettingLayer layer);
  // Inserts a layer directly below the one that sets `name`, so that it overrides everything that layer overrides.
  void add_below(std::string_view name, SettingLayer layer);
  // Inserts a layer directly below the first one, which holds the request itself.
  void add_below_first(SettingLayer layer);

  // A copy with a layer above all others.
  Settings with(SettingLayer top) const;

  const Setting* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool is_asked(std::string_view name) const;  // set by the request itself, not by a default

  // Typed access to options that are not request fields. An invalid value is an InvalidArgument that names its origin and the
  // valid values.
  bool flag(std::string_view name) const;
  int count(std::string_view name) const;  // how often a flag is given
  std::string text(std::string_view name, std::string fallback = {}) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  std::string choice(std::string_view name, const std::vector<std::string>& allowed, std::string fallback) const;

 private:
  std::vector<SettingLayer> layers_;
};

// Every request field that is set, checked.
RequestSpec spec_of(const Settings& settings);

// The fields of a spec as a layer. Each setting's origin is `origin`.
SettingLayer layer_of(const RequestSpec& spec, const std::string& origin);

// The same for the settings that a record has of its image. What such a record could say and does not say was at its built-in
// default, so the layer hides what configuration says about it. A watermark is not part of that: a configured one is for every
// image.
SettingLayer layer_of_record(const RequestSpec& recorded, const std::string& origin);

// If the layer names a model, hides a transformer file (`dit`) that configuration names, which would be used in its place. One
// that the request below the layer asks for stays in use.
void hide_configured_transformer(SettingLayer& layer, const Settings& below = {});

// The values of these fields in the environment and in a configuration file. Invalid values and fields that are not available yet
// are InvalidArgument. From a project file only what it may set is used.
SettingLayer layer_of_environment(const std::vector<const Field*>& fields, const GetEnv& environment);
SettingLayer layer_of_file(const std::vector<const Field*>& fields, const ConfigFile& file);

}  // namespace flux2
