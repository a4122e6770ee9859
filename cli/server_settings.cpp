#include "cli/server_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/config_keys.h"

namespace flux2 {

namespace {

constexpr const char* kShownSections[] = {"serve", "sdapi", "openai", "ui", "safety", "models"};
constexpr const char* kSecretKeys[] = {"serve.api-key", "serve.database", "serve.images"};  // addresses may contain passwords

bool is_among(const std::string& text, const auto& list) {
  return std::any_of(std::begin(list), std::end(list), [&](const char* one) { return text == one; });
}

Json number_of(const std::string& text, bool whole) {
  if (int64_t integer = 0; whole && std::from_chars(text.data(), text.data() + text.size(), integer).ec == std::errc())
    return integer;
  if (double number = 0; std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc()) return number;
  return text;
}

Json value_of(const Field* field, const std::vector<std::string>& values) {
  if (!field || field->type == FieldType::Texts) return values;
  if (values.empty()) return nullptr;
  switch (field->type) {
    case FieldType::Integer: return number_of(values[0], true);
    case FieldType::Number: return number_of(values[0], false);
    case FieldType::Flag: return values[0] == "true" || values[0] == "1" || values[0].empty();
    default: return values[0];
  }
}

// "(default: 100)" at the end of its help is where a field says so.
Json default_of(const Field* field) {
  if (!field) return Json::array();
  if (field->type == FieldType::Flag) return false;
  const std::string mark = "(default: ";
  const size_t begin = field->help.rfind(mark), end = field->help.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return nullptr;
  const std::string text = field->help.substr(begin + mark.size(), end - begin - mark.size());
  return text.find(' ') == std::string::npos ? value_of(field, {text}) : Json(nullptr);
}

// As TOML; JSON's texts and lists are TOML as well.
std::string literal_of(const Json& value) {
  if (value.is_null()) return "";
  check(!value.is_object(), "the value must not be an object");
  return value.dump();
}

ServerSetting setting_of(const std::string& key, const Invocation& run, const ConfigFile& file) {
  const Field* field = config_field(key);
  ServerSetting setting{.key = key, .value = default_of(field), .fallback = default_of(field), .origin = "default"};
  setting.is_secret = is_among(key, kSecretKeys);
  const Setting* given = field ? run.settings.find(option_name(*field)) : nullptr;
  const auto stored = file.values.find(key);
  if (given && !given->is_default) {
    setting.value = value_of(field, given->values);
    setting.origin = "command";
  } else if (const char* variable = field ? run.environment(environment_name(*field).c_str()) : nullptr; variable && *variable) {
    setting.value = value_of(field, {variable});
    setting.origin = "env";
  } else if (stored != file.values.end()) {
    setting.value = value_of(field, stored->second);
    setting.origin = "file";
  }
  if (setting.is_secret && setting.origin == "default") setting.value = nullptr;
  return setting;
}

}  // namespace

SettingsFile server_settings(const Invocation& run) {
  SettingsFile file;
  file.list = [&run] {
    const ConfigFile stored = run.user.path.empty() ? run.user : read_config(run.user.path, Log{});
    std::vector<ServerSetting> settings;
    for (const std::string& key : config_keys())
      if (is_among(key.substr(0, key.find('.')), kShownSections)) settings.push_back(setting_of(key, run, stored));
    return settings;
  };
  file.check = [](const std::string& key, const Json& value) { check_config_value(key, literal_of(value)); };
  file.write = [&run](const std::string& key, const Json& value) { change_config(run.user, key, literal_of(value)); };
  return file;
}

}  // namespace flux2
