#include "server/api/native_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "server/api/native.h"
#include "server/http/errors.h"

namespace flux2 {

namespace {

bool is_on(const Json& value, bool otherwise) {
  if (value.is_null()) return otherwise;
  return value.is_boolean() ? value.get<bool>() : value == "on";
}

std::string word(const Json& value, const char* otherwise) {
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

using Apply = void (*)(ApiContext&, const Json&);

const std::map<std::string, Apply>& applied_at_once() {
  static const std::map<std::string, Apply> table = {
      {"serve.cancel-on-disconnect", [](ApiContext& api, const Json& v) { api.cancel_on_disconnect = is_on(v, true); }},
      {"serve.allow-url-fetch",
       [](ApiContext& api, const Json& v) {
         const std::string which = word(v, "off");
         api.url_fetch = which == "https"  ? ApiContext::UrlFetch::Https
                         : which == "http" ? ApiContext::UrlFetch::Http
                                           : ApiContext::UrlFetch::Off;
       }},
      {"openai.alias-openai-models", [](ApiContext& api, const Json& v) { api.alias_openai_models = is_on(v, true); }},
      {"sdapi.img2img",
       [](ApiContext& api, const Json& v) {
         api.sdapi_img2img = word(v, "edit") == "strength" ? ApiContext::Img2Img::Strength : ApiContext::Img2Img::Edit;
       }},
      {"sdapi.distilled-step-cap",
       [](ApiContext& api, const Json& v) {
         api.sdapi_distilled_step_cap = v.is_number_integer() ? v.get<int64_t>() : int64_t{8};
       }},
  };
  return table;
}

Json settings_json(const SettingsFile& file) {
  Json json = Json::object();
  for (const ServerSetting& setting : file.list()) {
    const bool restart = !applied_at_once().contains(setting.key);
    if (setting.is_secret)
      json[setting.key] = {{"set", !setting.value.is_null()}, {"origin", setting.origin}, {"restart", restart}};
    else
      json[setting.key] = {
          {"value", setting.value}, {"default", setting.fallback}, {"origin", setting.origin}, {"restart", restart}};
  }
  return json;
}

HttpResponse change_settings(const ServerRequest& request, ApiContext& api, const SettingsFile& file) {
  const Json changes = json_body(request, api.app);
  const std::vector<ServerSetting> known = file.list();
  // Everything is checked before anything is written.
  for (const auto& [key, value] : changes.items()) {
    const auto setting =
        std::find_if(known.begin(), known.end(), [&, &name = key](const ServerSetting& s) { return s.key == name; });
    if (setting == known.end()) throw HttpError(400, "invalid_request", "unknown setting " + printable(key), key);
    if (setting->is_secret)
      throw HttpError(403, "forbidden", printable(key) + " is a secret and cannot be changed over the network", key);
    if (setting->origin == "command" || setting->origin == "env")
      throw HttpError(409, "setting_overridden",
                      fmt::format("{} was set {}, which overrides the configuration file", key,
                                  setting->origin == "env" ? "in the environment" : "when the server was started"),
                      key);
    try {
      file.check(key, value);
    } catch (const Error& e) {
      throw HttpError(400, "invalid_value", e.what(), key);
    }
  }
  for (const auto& [key, value] : changes.items()) {
    file.write(key, value);
    apply_setting(api, key, value);
  }
  return HttpResponse::json(settings_json(file));
}

}  // namespace

bool apply_setting(ApiContext& api, const std::string& key, const Json& value) {
  const auto found = applied_at_once().find(key);
  if (found == applied_at_once().end()) return false;
  found->second(api, value);
  return true;
}

void add_settings_routes(Router& router, ApiContext& api, const SettingsFile& file) {
  router.add({.method = "GET",
              .pattern = "/api/v1/settings",
              .handler = answering([&file](const ServerRequest&) { return HttpResponse::json(settings_json(file)); }),
              .scope = Scope::Manage,
              .summary = "settings of the server: value, default, where it was set, and whether a change needs a restart"});
  router.add({.method = "PATCH",
              .pattern = "/api/v1/settings",
              .handler = answering([&](const ServerRequest& request) { return change_settings(request, api, file); }),
              .scope = Scope::Admin,
              .summary = "change settings in the configuration file; null removes one",
              .body = R"({"type":"object"})"});
}

}  // namespace flux2
