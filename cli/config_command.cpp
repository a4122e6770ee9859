#include <fmt/format.h>

#include <map>
#include <optional>

#include "app/presets.h"
#include "app/request_limits.h"
#include "cli/command.h"
#include "cli/config_keys.h"

namespace flux2 {

namespace {

struct Shown {
  std::string key, value, origin;
};

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

// The value of a key as a command would see it, unless the command line says otherwise.
std::optional<Shown> look_up(const Invocation& run, const std::string& key) {
  const Field* field = config_field(key);
  const LimitField* limit = config_limit(key);
  const std::string variable = field ? environment_name(*field) : limit ? environment_name_of(*limit) : "";
  if (const char* value = variable.empty() ? nullptr : run.environment(variable.c_str()); value && *value)
    return Shown{key, value, variable};
  for (const ConfigFile* file : {&run.project, &run.user})
    if (const auto found = file->values.find(key); found != file->values.end())
      return Shown{key, joined(found->second), file->path.string()};
  return std::nullopt;
}

std::vector<Shown> all_values(const Invocation& run) {
  std::map<std::string, Shown> values;
  for (const ConfigFile* file : {&run.user, &run.project})
    for (const auto& [key, value] : file->values) values[key] = {};
  for (const std::string& key : config_keys()) values[key] = {};
  std::vector<Shown> shown;
  for (const auto& [key, unused] : values)
    if (auto value = look_up(run, key)) shown.push_back(std::move(*value));
  return shown;
}

Json to_json(const Invocation& run, const Shown& v) {
  return run.settings.flag("origin") ? Json{{"value", v.value}, {"origin", v.origin}} : Json(v.value);
}

int list(Invocation& run) {
  const auto values = all_values(run);
  if (run.console.json()) {
    Json json = Json::object();
    for (const Shown& v : values) json[v.key] = to_json(run, v);
    run.console.result(pretty(json));
    return 0;
  }
  if (values.empty()) run.console.note("nothing is configured; `flux2 help config` lists the keys");
  for (const Shown& v : values)
    run.console.result(run.settings.flag("origin") ? fmt::format("{} = {}  ({})", v.key, v.value, v.origin)
                                                   : fmt::format("{} = {}", v.key, v.value));
  return 0;
}

}  // namespace

int run_config(Invocation& run) {
  std::vector<std::string> words = run.positional;
  if (words.empty()) words = {"list"};
  const std::string action = words[0];
  const auto need = [&](size_t count, const char* usage) { check(words.size() == count, "config is used as: config {}", usage); };
  if (action == "list") {
    need(1, "list");
    return list(run);
  }
  if (action == "path") {
    need(1, "path");
    if (run.console.json()) run.console.result(pretty({{"path", run.user.path.string()}}));
    else run.console.result_path(run.user.path.string());
  } else if (action == "styles") {
    need(1, "styles");
    if (run.console.json()) run.console.result(pretty(all_styles(run)));
    else
      for (const auto& [name, text] : all_styles(run)) run.console.result(fmt::format("{:<12} {}", name, text));
  } else if (action == "get") {
    need(2, "get KEY");
    const auto value = look_up(run, words[1]);
    if (!value && !is_config_key(words[1])) refuse_unknown_key(words[1]);
    if (!value) fail(ErrorCode::NotFound, "{} is not set", words[1]);
    if (run.console.json()) run.console.result(pretty({{value->key, to_json(run, *value)}}));
    else run.console.result(value->value);
  } else if (action == "set") {
    need(3, "set KEY VALUE");
    change_config(run.user, words[1], toml_literal(words[2]));
  } else if (action == "unset") {
    need(2, "unset KEY");
    change_config(run.user, words[1], "");
  } else {
    fail(ErrorCode::InvalidArgument, "unknown action \"{}\"; use get, set, unset, list, path or styles", action);
  }
  return 0;
}

}  // namespace flux2
