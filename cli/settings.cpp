#include "cli/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

template <class T>
T parse_number(const Setting& setting, T low, T high, const char* kind) {
  const std::string& text = setting.values.back();
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || !(value >= low && value <= high))
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not {} from {} to {}", setting.origin, text, kind, low, high);
  return value;
}

template <class F>
void for_each_configurable(const std::vector<OptionGroup>& groups, F&& f) {
  for (const OptionGroup& group : groups)
    for (const OptionSpec& option : group.options)
      if (!option.section.empty()) f(option);
}

// Later versions have this option; a configuration shared with them must not stop this one.
bool unusable(const OptionSpec& option) { return option.later; }

}  // namespace

namespace {

SettingLayer spelled_out(SettingLayer layer) {
  if (const auto size = layer.find("size"); size != layer.end()) {
    const Setting given = size->second;
    const PictureSize parsed = in_context(given.origin, [&] { return parse_picture_size(given.values.back()); });
    layer.emplace("width", Setting{{std::to_string(parsed.width)}, given.origin});
    layer.emplace("height", Setting{{std::to_string(parsed.height)}, given.origin});
  }
  if (const auto dir = layer.find("dir"); dir != layer.end()) layer.emplace("model", dir->second);
  return layer;
}

}  // namespace

void Settings::add(SettingLayer layer) { layers_.push_back(spelled_out(std::move(layer))); }

void Settings::add_below_first(SettingLayer layer) {
  layers_.insert(layers_.begin() + (layers_.empty() ? 0 : 1), spelled_out(std::move(layer)));
}

void Settings::add_below(std::string_view name, SettingLayer layer) {
  const auto holder = std::find_if(layers_.begin(), layers_.end(),
                                   [&](const SettingLayer& l) { return l.contains(std::string(name)); });
  layers_.insert(holder == layers_.end() ? holder : holder + 1, std::move(layer));
}

Settings Settings::with(SettingLayer top) const {
  Settings copy = *this;
  copy.layers_.insert(copy.layers_.begin(), spelled_out(std::move(top)));
  return copy;
}

const Setting* Settings::find(std::string_view name) const {
  for (const SettingLayer& layer : layers_)
    if (const auto found = layer.find(std::string(name)); found != layer.end()) return &found->second;
  return nullptr;
}

bool Settings::flag(std::string_view name) const {
  const Setting* setting = find(name);
  if (!setting) return false;
  const std::string& value = setting->values.back();
  for (const char* yes : {"true", "1", "yes", "on"})
    if (value == yes) return true;
  for (const char* no : {"false", "0", "no", "off", ""})
    if (value == no) return false;
  fail(ErrorCode::InvalidArgument, "{}: \"{}\" is neither true nor false", setting->origin, value);
}

int Settings::count(std::string_view name) const {
  const Setting* setting = find(name);
  return setting ? static_cast<int>(setting->values.size()) : 0;
}

std::string Settings::text(std::string_view name, std::string fallback) const {
  const Setting* setting = find(name);
  return setting ? setting->values.back() : std::move(fallback);
}

std::optional<int64_t> Settings::integer(std::string_view name, int64_t low, int64_t high) const {
  const Setting* setting = find(name);
  if (!setting) return std::nullopt;
  return parse_number<int64_t>(*setting, low, high, "a whole number");
}

std::optional<double> Settings::number(std::string_view name, double low, double high) const {
  const Setting* setting = find(name);
  if (!setting) return std::nullopt;
  return parse_number<double>(*setting, low, high, "a number");
}

std::string Settings::choice(std::string_view name, const std::vector<std::string>& allowed,
                             std::string fallback) const {
  const Setting* setting = find(name);
  if (!setting) return fallback;
  const std::string& value = setting->values.back();
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not one of {}", setting->origin, value, fmt::join(allowed, ", "));
  return value;
}

std::string environment_name(std::string_view option) {
  std::string name = "FLUX2_";
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

SettingLayer layer_of(const Arguments& arguments) {
  SettingLayer layer;
  for (const auto& [name, given] : arguments.options) layer[name] = {given.values, given.spelled};
  return layer;
}

SettingLayer layer_of_environment(const std::vector<OptionGroup>& options, const GetEnv& environment) {
  SettingLayer layer;
  for_each_configurable(options, [&](const OptionSpec& option) {
    if (unusable(option)) return;
    const std::string name = environment_name(option.name);
    if (const char* value = environment(name.c_str()); value && *value) layer[option.name] = {{value}, name};
  });
  return layer;
}

SettingLayer layer_of_file(const std::vector<OptionGroup>& options, const ConfigFile& file) {
  SettingLayer layer;
  for_each_configurable(options, [&](const OptionSpec& option) {
    const std::string key = option.section + "." + option.name;
    const auto value = file.values.find(key);
    if (value == file.values.end() || value->second.empty() || unusable(option)) return;
    layer[option.name] = {value->second, fmt::format("{} in {}", key, file.path.filename().string())};
  });
  return layer;
}

}  // namespace flux2
