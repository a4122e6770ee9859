#include "cli/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "app/request_limits.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/program_fields.h"
#include "record/field_values.h"

namespace flux2 {

namespace {

constexpr std::string_view kLimits = "limits.";

template <class F>
void for_each_field(F&& f) {
  for (const auto* table : {&request_fields(), &program_fields()})
    for (const Field& field : *table)
      if (!field.section.empty()) f(field);
}

}  // namespace

const std::vector<std::string>& config_keys() {
  static const std::vector<std::string> keys = [] {
    std::set<std::string> all = {"models.paths"};
    for (const LimitField& limit : limit_fields()) all.insert(std::string(kLimits) + limit.name);
    for_each_field([&](const Field& field) {
      if (!field.later && !field.help.empty()) all.insert(config_key(field));
    });
    return std::vector<std::string>(all.begin(), all.end());
  }();
  return keys;
}

const Field* config_field(const std::string& key) {
  const Field* found = nullptr;
  for_each_field([&](const Field& field) {
    if (config_key(field) == key) found = &field;
  });
  return found;
}

const LimitField* config_limit(const std::string& key) {
  return key.starts_with(kLimits) ? find_limit(std::string_view(key).substr(kLimits.size())) : nullptr;
}

bool is_config_key(const std::string& key) {
  return key == "models.paths" || key.starts_with("styles.") || config_limit(key) || config_field(key) != nullptr;
}

void refuse_unknown_keys(const ConfigFile& file) {
  std::vector<std::string> keys = file.refused;
  for (const auto& [key, values] : file.values) keys.push_back(key);
  for (const std::string& key : keys) {
    if (is_config_key(key)) continue;
    const std::string near = nearest_word(key, config_keys());
    throw Error(ErrorCode::InvalidArgument, fmt::format("{}: unknown key {}", file.path.string(), printable(key)),
                near.empty() ? Hint("{0} lists the keys; {1} removes this one",
                                    {run_command("help config"), run_command("config unset " + printable(key))})
                             : Hint("did you mean " + near + "?"));
  }
}

void check_config_value(const std::string& key, const std::string& literal) {
  const Field* field = config_field(key);
  if ((!field && !config_limit(key)) || literal.empty()) return;
  const auto values = parse_toml("x = " + literal + "\n");
  const auto found = values.find("x");
  check(found != values.end() && !found->second.empty(), "{}: the value is empty", key);
  if (field) parse_value(*field, found->second, key);
  else limits_of([](const char*) -> const char* { return nullptr; }, {.path = {}, .values = {{key, found->second}}});
}

void refuse_unknown_key(const std::string& key) {
  const std::string near = nearest_word(key, config_keys());
  throw Error(ErrorCode::InvalidArgument, "unknown configuration key \"" + key + "\"",
              near.empty() ? Hint("{0} lists the keys", {run_command("help config")}) : Hint("did you mean " + near + "?"));
}

void change_config(const ConfigFile& config, const std::string& key, const std::string& literal) {
  const size_t dot = key.find('.');
  // A key that no longer exists can still be removed.
  if ((!is_config_key(key) && !(literal.empty() && config.values.contains(key))) || dot == key.npos) refuse_unknown_key(key);
  for (const char c : key)
    check(std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.',
          "configuration key \"{}\": only letters, digits, - and _", key);
  check_config_value(key, literal);
  const std::filesystem::path path = config.path;
  check(!path.empty(), "flux2 has no data folder: set FLUX2_HOME or HOME");
  std::error_code ignored;
  const bool exists = std::filesystem::exists(path, ignored) && std::filesystem::file_size(path, ignored) > 0;
  const std::string edited = edit_toml(exists ? read_text_file(path) : "", key.substr(0, dot), key.substr(dot + 1), literal);
  // The editor works line by line; reading its result back shows whether the file was simple enough for that.
  const auto values = in_context("the value or " + path.string() + " cannot be written", [&] { return parse_toml(edited); });
  check(values.contains(key) == !literal.empty(), "{} is written in a way that has to be edited by hand", path.string());
  AtomicFile file(path);
  file.write(edited.data(), edited.size());
  file.commit();
}

}  // namespace flux2
