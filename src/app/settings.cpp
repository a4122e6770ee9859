#include "app/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/picture_size.h"
#include "record/field_values.h"

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

SettingLayer spelled_out(SettingLayer layer) {
  if (const auto size = layer.find("size"); size != layer.end()) {
    const Setting given = size->second;
    const PictureSize parsed = in_context(given.origin, [&] { return parse_picture_size(given.values.back()); });
    layer.emplace("width", Setting{{std::to_string(parsed.width)}, given.origin, given.is_default});
    layer.emplace("height", Setting{{std::to_string(parsed.height)}, given.origin, given.is_default});
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
  const auto holder =
      std::find_if(layers_.begin(), layers_.end(), [&](const SettingLayer& l) { return l.contains(std::string(name)); });
  layers_.insert(holder == layers_.end() ? holder : holder + 1, std::move(layer));
}

Settings Settings::with(SettingLayer top) const {
  Settings copy = *this;
  copy.layers_.insert(copy.layers_.begin(), spelled_out(std::move(top)));
  return copy;
}

const Setting* Settings::find(std::string_view name) const {
  for (const SettingLayer& layer : layers_)
    if (const auto found = layer.find(std::string(name)); found != layer.end())
      return found->second.values.empty() ? nullptr : &found->second;
  return nullptr;
}

bool Settings::is_asked(std::string_view name) const {
  const Setting* setting = find(name);
  return setting && !setting->is_default;
}

bool Settings::flag(std::string_view name) const {
  const Setting* setting = find(name);
  if (!setting) return false;
  const std::string& value = setting->values.back();
  for (const char* yes : {"true", "1", "yes", "on"})
    if (value == yes) return true;
  for (const char* no : {"false", "0", "no", "off", ""})
    if (value == no) return false;
  fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not true or false", setting->origin, value);
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

std::string Settings::choice(std::string_view name, const std::vector<std::string>& allowed, std::string fallback) const {
  const Setting* setting = find(name);
  if (!setting) return fallback;
  const std::string& value = setting->values.back();
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not one of {}", setting->origin, value, fmt::join(allowed, ", "));
  return value;
}

RequestSpec spec_of(const Settings& settings) {
  RequestSpec spec;
  for (const Field& f : request_fields()) {
    if (f.type == FieldType::Size) continue;  // every layer has it as width and height
    const Setting* setting = settings.find(option_name(f));
    if (!setting) continue;
    set_value(spec, f, parse_value(f, setting->values, setting->origin));
    spec.origins[f.name] = setting->origin;
    if (setting->is_default) spec.defaults.insert(f.name);
    if (setting->names_only) spec.names_only.insert(f.name);
  }
  return spec;
}

SettingLayer layer_of(const RequestSpec& spec, const std::string& origin) {
  SettingLayer layer;
  for (const Field& f : request_fields())
    if (const auto value = get_value(spec, f))
      layer[option_name(f)] = {.values = print_value(*value), .origin = origin, .names_only = spec.names_only.contains(f.name)};
  return layer;
}

SettingLayer layer_of_record(const RequestSpec& recorded, const std::string& origin) {
  SettingLayer layer = layer_of(recorded, origin);
  for (const Field& f : request_fields()) {
    const bool chooses_size = f.name == "preset" || f.name == "match";  // the record has the size itself
    // Records of earlier versions have no rounding, so a configured one stays in use for their images.
    const bool is_recorded = !f.record_key.empty() && f.section != "safety" && f.name != "rounding";
    if (chooses_size || is_recorded) layer.try_emplace(option_name(f), Setting{.values = {}, .origin = origin});
  }
  return layer;
}

void hide_configured_transformer(SettingLayer& layer, const Settings& below) {
  const bool names_model = layer.contains("model") || layer.contains("dir");
  if (names_model && !below.is_asked("dit")) layer.try_emplace("dit", Setting{.values = {}, .origin = "model"});
}

SettingLayer layer_of_environment(const std::vector<const Field*>& fields, const GetEnv& environment) {
  SettingLayer layer;
  for (const Field* f : fields) {
    if (f->section.empty()) continue;
    const std::string name = environment_name(*f);
    const char* value = environment(name.c_str());
    if (!value || !*value) continue;
    parse_value(*f, {value}, name);
    layer[option_name(*f)] = {{value}, name, true};
  }
  return layer;
}

SettingLayer layer_of_file(const std::vector<const Field*>& fields, const ConfigFile& file) {
  SettingLayer layer;
  for (const Field* f : fields) {
    const std::string key = config_key(*f);
    const auto found = file.values.find(key);
    if (key.empty() || found == file.values.end() || found->second.empty()) continue;
    if (file.is_project && f->project == Field::Never) continue;
    const std::string origin = fmt::format("{} in {}", key, file.path.filename().string());
    parse_value(*f, found->second, origin);
    const bool by_name = file.is_project && f->project == Field::ByName;
    layer[option_name(*f)] = {.values = found->second, .origin = origin, .is_default = true, .names_only = by_name};
  }
  return layer;
}

}  // namespace flux2
