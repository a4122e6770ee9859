#include <limits>

#include "base/text.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr size_t kLongestText = 32'000;
constexpr int64_t kMostPosition = 1'000'000;

ProjectStore project_store(ApiContext& api) { return ProjectStore(api.queue.assets().database()); }

std::string name_in(BodyMembers& members) {
  std::string name(trimmed(members.text("name", kLongestName).value_or("")));
  if (name.empty()) members.wrong("name", "must not be empty");
  return name;
}

// Members that are absent stay; null removes a value.
void read_settings(BodyMembers& members, Json& settings) {
  const auto set = [&](const char* name, const auto& value) {
    if (value) settings[name] = *value;
    else if (members.is_null(name)) settings.erase(name);
  };
  for (const char* name : {"width", "height"}) set(name, members.integer(name, 64, 4096));
  set("seed", members.integer("seed", 0, std::numeric_limits<int64_t>::max()));
  set("model", members.text("model", kLongestName));
  for (const char* name : {"style_prompt", "negative", "notes"}) set(name, members.text(name, kLongestText));
}

constexpr const char* kProjectBody =
    R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},"width":{"type":["integer","null"]},
        "height":{"type":["integer","null"]},"seed":{"type":["integer","null"]},"model":{"type":["string","null"]},
        "style_prompt":{"type":["string","null"]},"negative":{"type":["string","null"]},"notes":{"type":["string","null"]}}})";

HttpResponse list_projects(const ServerRequest& request, ApiContext& api) {
  Json items = Json::array();
  for (const Project& project : project_store(api).list(flag_argument(request, "trash").value_or(false)))
    items.push_back(project_to_json(project));
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

HttpResponse create_project(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"name", "width", "height", "seed", "model", "style_prompt", "negative", "notes"});
  Project project;
  project.name = name_in(members);
  read_settings(members, project.settings);
  members.check_all();
  project.id = new_id();
  project.created = project.updated = now_ms();
  project_store(api).insert(project);
  api.queue.events().publish("project.created", project_to_json(project));
  HttpResponse response = HttpResponse::json(project_to_json(project), 201);
  response.headers.push_back({"location", "/api/v1/projects/" + project_id_text(project.id)});
  return response;
}

HttpResponse change_project(const ServerRequest& request, ApiContext& api) {
  Project project = project_in_path(request, api);
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"name", "width", "height", "seed", "model", "style_prompt", "negative", "notes"});
  if (members.has("name")) project.name = name_in(members);
  read_settings(members, project.settings);
  if (project.id.empty())
    for (const auto& [name, value] : project.settings.items())
      if (name != "notes") members.wrong(name, "the default project changes no requests, so it has no settings");
  members.check_all();
  project.updated = now_ms();
  project_store(api).save(project);
  api.queue.events().publish("project.updated", project_to_json(project));
  return HttpResponse::json(project_to_json(project));
}

HttpResponse delete_project(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  if (project.id.empty()) throw HttpError(409, "default_project", "the default project cannot be deleted");
  const std::string files = request.argument("files").value_or("trash");
  if (files != "trash" && files != "keep") throw HttpError(400, "invalid_request", "files must be trash or keep", "files");
  const auto images = files == "keep" ? ProjectStore::Images::Keep : ProjectStore::Images::Trash;
  project_store(api).trash(project.id, images, now_ms());
  api.queue.events().publish("project.deleted", {{"id", project_id_text(project.id)}, {"trash", true}});
  return HttpResponse::empty(204);
}

HttpResponse restore_project(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api, true);
  project_store(api).restore(project.id);
  const auto after = project_store(api).get(project.id);
  if (!after) throw HttpError(404, "not_found", "project not found");
  api.queue.events().publish("project.updated", project_to_json(*after));
  return HttpResponse::json(project_to_json(*after));
}

// ---- boards ----

Board board_of(const ServerRequest& request, ApiContext& api) {
  const std::string id = id_without_prefix(request.parameter("id"), "brd_");
  auto board = id.empty() ? std::nullopt : project_store(api).board(id);
  if (!board) throw HttpError(404, "not_found", "board not found");
  return std::move(*board);
}

HttpResponse list_boards(const ServerRequest& request, ApiContext& api) {
  Json items = Json::array();
  for (const Board& board : project_store(api).boards(project_in_path(request, api).id)) items.push_back(board_to_json(board));
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

HttpResponse create_board(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"name"});
  Board board;
  board.name = name_in(members);
  members.check_all();
  board.id = new_id();
  board.project = project.id;
  project_store(api).insert_board(board);
  const Json json = board_to_json(project_store(api).board(board.id).value_or(board));
  api.queue.events().publish("board.created", json);
  return HttpResponse::json(json, 201);
}

HttpResponse change_board(const ServerRequest& request, ApiContext& api) {
  Board board = board_of(request, api);
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"name", "position", "cover_asset_id"});
  if (members.has("name")) board.name = name_in(members);
  if (const auto position = members.integer("position", -kMostPosition, kMostPosition)) board.position = *position;
  if (members.is_null("cover_asset_id")) board.cover.clear();
  if (const auto cover = members.text("cover_asset_id", 64)) {
    board.cover = id_without_prefix(*cover, "ast_");
    if (board.cover.empty() || !api.queue.assets().get(board.cover)) members.wrong("cover_asset_id", "asset not found");
  }
  members.check_all();
  project_store(api).save_board(board);
  api.queue.events().publish("board.updated", board_to_json(board));
  return HttpResponse::json(board_to_json(board));
}

HttpResponse delete_board(const ServerRequest& request, ApiContext& api) {
  const Board board = board_of(request, api);
  project_store(api).remove_board(board.id);
  api.queue.events().publish("board.deleted", {{"id", "brd_" + board.id}});
  return HttpResponse::empty(204);
}

}  // namespace

Project project_in_path(const ServerRequest& request, ApiContext& api, bool also_trash) {
  const auto id = project_id_in(request.parameter("id"));
  auto project = id ? project_store(api).get(*id) : std::nullopt;
  if (!project || (project->deleted != 0 && !also_trash)) throw HttpError(404, "not_found", "project not found");
  return std::move(*project);
}

void add_project_routes(Router& router, ApiContext& api) {
  const auto add = [&](const char* method, const char* pattern, const char* summary,
                       HttpResponse (*answer)(const ServerRequest&, ApiContext&), std::vector<std::string> arguments = {},
                       const char* body = "") {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering([answer, &api](const ServerRequest& request) { return answer(request, api); }),
                .scope = Scope::Generate,
                .summary = summary,
                .arguments = std::move(arguments),
                .body = body});
  };
  add("GET", "/api/v1/projects", "all projects, the default one first", list_projects, {"trash"});
  add("POST", "/api/v1/projects", "create a project", create_project, {}, kProjectBody);
  add("GET", "/api/v1/projects/{id}", "one project", [](const ServerRequest& request, ApiContext& a) {
    return HttpResponse::json(project_to_json(project_in_path(request, a, true)));
  });
  add("PATCH", "/api/v1/projects/{id}", "rename it or change its settings", change_project, {}, kProjectBody);
  add("DELETE", "/api/v1/projects/{id}", "put it into the trash; files=keep moves its images to the default project",
      delete_project, {"files"});
  add("POST", "/api/v1/projects/{id}/restore", "take it out of the trash, with its images", restore_project);
  add("GET", "/api/v1/projects/{id}/boards", "its boards", list_boards);
  add("POST", "/api/v1/projects/{id}/boards", "create a board", create_board, {},
      R"({"type":"object","additionalProperties":false,"required":["name"],"properties":{"name":{"type":"string"}}})");
  add("PATCH", "/api/v1/boards/{id}", "rename a board, move it, give it a cover", change_board, {},
      R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},"position":{"type":["integer","null"]},
          "cover_asset_id":{"type":["string","null"]}}})");
  add("DELETE", "/api/v1/boards/{id}", "remove a board; its images stay", delete_board);
}

}  // namespace flux2
