// Installing models over HTTP: downloads, starter sets, files of the hub and its token.
#include <filesystem>

#include "app/install_model.h"
#include "app/model_lists.h"
#include "hub/remote/choose_files.h"
#include "server/api/native_models.h"
#include "server/http/errors.h"

namespace flux2 {

namespace {

HttpResponse starter_sets(ModelsApi& m) {
  const std::vector<ModelRecord> ready = ready_records(m.api.app);
  Json items = Json::array();
  for (const Starter& starter : starters()) items.push_back(to_json(starter, ready));
  return HttpResponse::json(list_of(std::move(items)));
}

const char* what_is(const std::string& path) {
  const std::filesystem::path name(path);
  const std::string file = name.filename().string(), ending = name.extension().string();
  if (ending == ".safetensors" || ending == ".gguf") return "weights";
  if (file.starts_with("tokenizer") || file == "merges.txt" || file == "vocab.json" || file == "special_tokens_map.json")
    return "tokenizer";
  return ending == ".json" ? "config" : is_fetched_kind(path) ? "text" : "other";
}

HttpResponse hub_files(const ServerRequest& request, ModelsApi& m) {
  const auto source = parse_source(request.argument("repo").value_or(""));
  if (!source || source->repository.empty())
    throw HttpError(400, "invalid_value", "repo must be the name of a repository: owner/name", "repo");
  const std::string revision = request.argument("revision").value_or(source->revision);
  const HubSettings settings = hub_settings_of(m.api.app);
  if (settings.offline) throw HttpError(424, "hub_unavailable", "this server does not use the network");
  const HttpClient http(settings.http);
  const HubClient hub(http, settings, {.retry = {.tries = 1}});
  RepositoryInfo info;
  Json items = Json::array();
  try {
    info = hub.info(source->repository, revision);
    for (const RemoteFile& file : hub.list(source->repository, info.commit))
      items.push_back(
          {{"path", file.path}, {"bytes", file.size}, {"what", what_is(file.path)}, {"installable", is_fetched_kind(file.path)}});
  } catch (const Error& e) {
    if (e.code() != ErrorCode::Network) throw;
    HttpError error(424, "hub_unavailable", e.what());
    error.hint = e.hint().plain();
    throw error;
  }
  Json json = list_of(std::move(items));
  json["repository"] = source->repository;
  json["commit"] = info.commit;
  json["license"] = info.licence;
  json["gated"] = info.gated;
  return HttpResponse::json(json);
}

Json token_state(const AppContext& app) {
  const HubSettings settings = hub_settings_of(app);
  Json state = {{"set", !settings.token.empty()}, {"valid", nullptr}};
  if (settings.token.empty() || settings.offline || !HttpClient::available()) return state;
  const HttpClient http(settings.http);
  const std::string url = settings.endpoint + "/api/whoami-v2";
  const HttpAnswer answer = http.send(
      {.url = url, .token = settings.token_for(url), .idle_timeout_s = settings.metadata_timeout_s, .max_body = 1 << 16});
  if (answer.ok()) state["valid"] = true;
  else if (answer.status == 401) state["valid"] = false;
  return state;
}

HttpResponse set_token(const ServerRequest& request, ModelsApi& m) {
  const Json body = json_body(request, m.api.app);
  if (body.size() != 1 || !body.contains("token"))
    throw HttpError(400, "invalid_request", "the body must be {\"token\": \"…\"}", "token");
  const std::string token = text_of(body["token"], "token", 1024);
  if (token.empty()) throw HttpError(400, "invalid_value", "the token is empty; DELETE removes the stored one", "token");
  store_hub_token(m.api.app, token);
  return HttpResponse::json(token_state(m.api.app));
}

std::string path_of_file(const ServerRequest& request, const AppContext& app) {
  const Json body = json_body(request, app);
  if (body.size() != 1 || !body.contains("path"))
    throw HttpError(400, "invalid_request", "the body must be {\"path\": \"…\"}", "path");
  return text_of(body["path"], "path", 4096);
}

}  // namespace

void add_install_routes(Router& router, ModelsApi& models) {
  const auto id = [](const ServerRequest& r) -> const std::string& { return r.parameter("id"); };
  add_routes(
      router, models,
      {
          {"POST",
           "/api/v1/models/install",
           Scope::Manage,
           "download, copy or register a model",
           [](const ServerRequest& r, ModelsApi& m) {
             return HttpResponse::json(m.installs.start(json_body(r, m.api.app)), 201);
           },
           {},
           R"({"type":"object","required":["source"],"properties":{"source":{"type":"string"},"name":{"type":["string","null"]},)"
           R"("in_place":{"type":["boolean","null"]},"revision":{"type":["string","null"]}},"additionalProperties":false})"},
          {"GET", "/api/v1/models/installs", Scope::Generate, "installations, newest first",
           [](const ServerRequest&, ModelsApi& m) { return HttpResponse::json(list_of(m.installs.list())); }},
          {"DELETE", "/api/v1/models/installs", Scope::Manage, "remove installations that have ended from the list",
           [](const ServerRequest&, ModelsApi& m) {
             return HttpResponse::json({{"removed", m.installs.prune()}});
           }},
          {"GET", "/api/v1/models/installs/{id}", Scope::Generate, "one installation",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.show(id(r))); }},
          {"DELETE", "/api/v1/models/installs/{id}", Scope::Manage, "remove an installation that has ended from the list",
           [id](const ServerRequest& r, ModelsApi& m) {
             m.installs.remove(id(r));
             return HttpResponse::empty();
           }},
          {"POST", "/api/v1/models/installs/{id}/pause", Scope::Manage, "pause an installation",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.pause(id(r))); }},
          {"POST", "/api/v1/models/installs/{id}/resume", Scope::Manage, "continue with the missing bytes",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.resume(id(r)), 202); }},
          {"POST", "/api/v1/models/installs/{id}/retry", Scope::Manage, "continue an installation that failed",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.resume(id(r)), 202); }},
          {"POST", "/api/v1/models/installs/{id}/restart", Scope::Manage, "download incomplete files from their first byte",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.restart(id(r)), 202); }},
          {"POST",
           "/api/v1/models/installs/{id}/files/restart",
           Scope::Manage,
           "download one file from its first byte",
           [id](const ServerRequest& r, ModelsApi& m) {
             return HttpResponse::json(m.installs.restart_file(id(r), path_of_file(r, m.api.app)), 202);
           },
           {},
           R"({"type":"object","required":["path"],"properties":{"path":{"type":"string"}},"additionalProperties":false})"},
          {"POST", "/api/v1/models/installs/{id}/cancel", Scope::Manage, "end an installation",
           [id](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(m.installs.cancel(id(r))); }},
          {"GET", "/api/v1/models/starter", Scope::Generate, "sets of parts that together can generate images",
           [](const ServerRequest&, ModelsApi& m) { return starter_sets(m); }},
          {"GET", "/api/v1/models/hub", Scope::Manage, "files of a repository of the hub", hub_files, {"repo", "revision"}},
          {"GET", "/api/v1/settings/hub-token", Scope::Manage, "whether there is a token for the hub, and whether it is valid",
           [](const ServerRequest&, ModelsApi& m) { return HttpResponse::json(token_state(m.api.app)); }},
          {"PUT",
           "/api/v1/settings/hub-token",
           Scope::Manage,
           "store a token for the hub",
           set_token,
           {},
           R"({"type":"object","required":["token"],"properties":{"token":{"type":"string"}},"additionalProperties":false})"},
          {"DELETE", "/api/v1/settings/hub-token", Scope::Manage, "delete the stored token",
           [](const ServerRequest&, ModelsApi& m) {
             store_hub_token(m.api.app, "");
             return HttpResponse::empty();
           }},
      });
}

}  // namespace flux2
