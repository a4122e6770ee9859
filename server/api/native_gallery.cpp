#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "base/text.h"
#include "image/metadata.h"
#include "record/generation_record.h"
#include "record/picture_metadata.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr size_t kMostInBulk = 1000;

AssetCatalog catalog_of(ApiContext& api) { return AssetCatalog(api.queue.assets().database()); }
ProjectStore projects_of(ApiContext& api) { return ProjectStore(api.queue.assets().database()); }

CatalogItem item_named(const std::string& text, ApiContext& api) {
  const std::string id = id_without_prefix(text, "ast_");
  auto item = id.empty() ? std::nullopt : catalog_of(api).get(id);
  if (!item) throw HttpError(404, "not_found", "asset not found");
  return std::move(*item);
}
CatalogItem item_of(const ServerRequest& request, ApiContext& api) { return item_named(request.parameter("id"), api); }

std::string id_argument(const ServerRequest& request, const char* name, const char* prefix) {
  const auto text = request.argument(name);
  if (!text || text->empty()) return {};
  std::string id = id_without_prefix(*text, prefix);
  if (id.empty()) throw HttpError(400, "invalid_request", fmt::format("{} must be an id, {}…", name, prefix), name);
  return id;
}

CatalogFilter filter_of(const ServerRequest& request) {
  CatalogFilter filter;
  filter.project = project_argument(request);
  filter.board = id_argument(request, "board", "brd_");
  filter.kind = request.argument("kind").value_or("");
  constexpr std::array<std::string_view, 7> kKinds = {"", "image", "sheet", "upload", "reference", "mask", "temporary"};
  if (std::find(kKinds.begin(), kKinds.end(), filter.kind) == kKinds.end())
    throw HttpError(400, "invalid_request", "kind must be image, sheet, upload, reference, mask or temporary", "kind");
  filter.tag = request.argument("tag").value_or("");
  filter.model = request.argument("model").value_or("");
  filter.lora = request.argument("lora").value_or("");
  filter.words = request.argument("q").value_or("");
  filter.seed = integer_argument(request, "seed", 0, std::numeric_limits<int64_t>::max());
  filter.width = integer_argument(request, "width", 1, 100'000);
  filter.height = integer_argument(request, "height", 1, 100'000);
  filter.from = time_argument(request, "from");
  filter.to = time_argument(request, "to");
  filter.starred = flag_argument(request, "starred");
  filter.trash = flag_argument(request, "trash").value_or(false);
  const std::string sort = request.argument("sort").value_or("");
  if (!sort.empty() && sort != "newest" && sort != "oldest")
    throw HttpError(400, "invalid_request", "sort must be newest or oldest", "sort");
  filter.oldest_first = sort == "oldest";
  filter.after = id_argument(request, "cursor", "ast_");
  filter.limit = static_cast<int>(integer_argument(request, "limit", 1, 200).value_or(50));
  return filter;
}

HttpResponse list_assets(const ServerRequest& request, ApiContext& api) {
  const CatalogFilter filter = filter_of(request);
  const auto found = catalog_of(api).search(filter);
  Json items = Json::array();
  for (const CatalogItem& item : found) items.push_back(item_to_json(item));
  Json next = nullptr, total = nullptr;
  if (found.size() == static_cast<size_t>(filter.limit)) next = "ast_" + found.back().asset.id;
  if (filter.after.empty()) total = next.is_null() ? static_cast<int64_t>(found.size()) : catalog_of(api).count(filter);
  return HttpResponse::json({{"items", items}, {"next", next}, {"total", total}});
}

// The board must be of the project in which the image is, or will be.
std::string checked_board(const std::string& text, const std::string& project, ApiContext& api) {
  std::string id = id_without_prefix(text, "brd_");
  const auto board = id.empty() ? std::nullopt : projects_of(api).board(id);
  if (!board) throw HttpError(400, "invalid_request", "board_id: board not found", "board_id");
  if (board->project != project)
    throw HttpError(400, "invalid_request", "board_id: the board belongs to another project", "board_id");
  return id;
}

std::string checked_project(const std::string& text, const char* param, ApiContext& api) {
  const auto id = project_id_in(text);
  const auto project = id ? projects_of(api).get(*id) : std::nullopt;
  if (!project || project->deleted != 0)
    throw HttpError(400, "invalid_request", fmt::format("{}: project not found", param), param);
  return *id;
}

CatalogItem apply_change(const std::string& id, const CatalogChange& change, ApiContext& api) {
  try {
    auto item = catalog_of(api).change(id, change);
    if (!item) throw HttpError(404, "not_found", "asset not found");
    api.queue.events().publish("asset.updated", item_to_json(*item));
    return std::move(*item);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Refused) throw HttpError(409, "already_there", e.what());
    throw;
  }
}

HttpResponse change_asset(const ServerRequest& request, ApiContext& api) {
  const CatalogItem item = item_of(request, api);
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"name", "starred", "tags", "board_id", "project_id"});
  CatalogChange change;
  change.name = members.text("name", kLongestName);
  change.starred = members.flag("starred");
  change.tags = members.texts("tags", kMostTags, kLongestTag);
  const auto board = members.text("board_id", 64), project = members.text("project_id", 64);
  members.check_all();
  if (project) change.project = checked_project(*project, "project_id", api);
  else if (members.is_null("project_id")) change.project = "";
  if (board) change.board = checked_board(*board, change.project.value_or(item.asset.project), api);
  else if (members.is_null("board_id")) change.board = "";
  return HttpResponse::json(item_to_json(apply_change(item.asset.id, change, api)));
}

void delete_item(const CatalogItem& item, bool permanent, bool force, ApiContext& api) {
  const auto users = force || item.deleted != 0 ? std::vector<std::string>()
                                                : ElementStore(api.queue.assets().database()).names_using(item.asset.id);
  if (!users.empty()) {
    HttpError error(409, "in_use", fmt::format("the image belongs to {}", fmt::join(users, ", ")));
    error.hint = "take it away from them first, or send force=1";
    throw error;
  }
  if (permanent) api.queue.assets().remove(item.asset.id);
  else catalog_of(api).trash(item.asset.id, now_ms());
  api.queue.events().publish("asset.deleted", {{"id", "ast_" + item.asset.id}, {"trash", !permanent}});
}

CatalogItem restore_item(const CatalogItem& item, ApiContext& api) {
  catalog_of(api).restore(item.asset.id);
  CatalogItem after = item_named("ast_" + item.asset.id, api);
  api.queue.events().publish("asset.updated", item_to_json(after));
  return after;
}

HttpResponse empty_trash(const ServerRequest& request, ApiContext& api) {
  const auto project = project_argument(request);
  int removed = 0;
  // Pages of a few: another process may add to the trash meanwhile.
  for (std::string after;;) {
    const auto page =
        catalog_of(api).search({.project = project, .trash = true, .oldest_first = true, .after = after, .limit = 200});
    if (page.empty()) break;
    after = page.back().asset.id;
    for (const CatalogItem& item : page) {
      delete_item(item, true, true, api);
      ++removed;
    }
  }
  return HttpResponse::json({{"removed", removed}});
}

HttpResponse metadata_of_asset(const ServerRequest& request, ApiContext& api) {
  const CatalogItem item = item_of(request, api);
  if (item.asset.missing) throw HttpError(410, "gone", "the file of this asset was deleted");
  const auto found =
      find_record(read_metadata(api.queue.assets().path_of(item.asset), api.app.limits.image), api.app.limits.json);
  Json json = {{"source", nullptr}, {"record", nullptr}};
  if (found) json = {{"source", found->source}, {"record", to_json(found->record)}};
  return HttpResponse::json(json);
}

HttpResponse lineage_of_asset(const ServerRequest& request, ApiContext& api) {
  const CatalogItem item = item_of(request, api);
  const auto listed = [&](const std::vector<std::string>& ids) {
    Json list = Json::array();
    for (const std::string& id : ids)
      if (const auto one = catalog_of(api).get(id)) list.push_back(item_to_json(*one));
    return list;
  };
  return HttpResponse::json({{"ancestors", listed(catalog_of(api).parents(item.asset.id))},
                             {"descendants", listed(catalog_of(api).children(item.asset.id))}});
}

HttpResponse change_many(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"ids", "action", "tags", "board_id", "project_id", "force"});
  const bool force = members.flag("force").value_or(false);
  const auto ids = members.texts("ids", kMostInBulk, 64);
  const auto action = members.text("action", 20);
  const auto tags = members.texts("tags", kMostTags, kLongestTag);
  const auto board = members.text("board_id", 64), project = members.text("project_id", 64);
  static const std::vector<std::string> actions = {"star", "unstar", "tag", "untag", "move", "trash", "restore", "delete"};
  if (!ids || ids->empty()) members.wrong("ids", "must be a list of ids of assets");
  if (!action || std::find(actions.begin(), actions.end(), *action) == actions.end())
    members.wrong("action", fmt::format("must be one of {}", fmt::join(actions, ", ")));
  else if ((*action == "tag" || *action == "untag") && !tags) members.wrong("tags", "is missing");
  else if (*action == "move" && !members.has("board_id") && !members.has("project_id"))
    members.wrong("project_id", "name the project or the board");
  members.check_all();
  std::optional<std::string> to_project;
  if (project) to_project = checked_project(*project, "project_id", api);
  else if (members.is_null("project_id")) to_project = "";
  Json done = Json::array(), failed = Json::array();
  for (const std::string& id : *ids) {
    try {
      const CatalogItem item = item_named(id, api);
      CatalogChange change;
      if (*action == "trash" || *action == "delete") {
        delete_item(item, *action == "delete", force, api);
      } else if (*action == "restore") {
        restore_item(item, api);
      } else {
        if (*action == "star" || *action == "unstar") change.starred = *action == "star";
        if (*action == "tag") change.add_tags = *tags;
        if (*action == "untag") change.remove_tags = *tags;
        if (*action == "move") {
          change.project = to_project;
          if (board) change.board = checked_board(*board, to_project.value_or(item.asset.project), api);
          else if (members.is_null("board_id")) change.board = "";
        }
        apply_change(item.asset.id, change, api);
      }
      done.push_back(id);
    } catch (...) {
      const HttpError error = http_error_of(std::current_exception());
      if (error.status >= 500) throw;
      failed.push_back({{"id", printable(id)}, {"code", error.code}, {"message", error.what()}});
    }
  }
  return HttpResponse::json({{"done", done}, {"failed", failed}});
}

HttpResponse list_tags(const ServerRequest& request, ApiContext& api) {
  Json items = Json::array();
  for (const auto& [tag, count] : catalog_of(api).tags(project_argument(request)))
    items.push_back({{"tag", tag}, {"count", count}});
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

}  // namespace

std::optional<std::string> project_argument(const ServerRequest& request) {
  const auto text = request.argument("project");
  if (!text || text->empty()) return std::nullopt;
  auto id = project_id_in(*text);
  if (!id) throw HttpError(400, "invalid_request", "project must be the id of a project, or default", "project");
  return id;
}

int purge_trash(AssetStore& assets, Events& events, int64_t before_ms) {
  AssetCatalog catalog(assets.database());
  int removed = 0;
  for (;;) {
    const auto ids = catalog.in_trash(before_ms, 200);
    int now = 0;
    for (const std::string& id : ids)
      if (assets.remove(id)) {
        ++now;
        events.publish("asset.deleted", {{"id", "ast_" + id}, {"trash", false}});
      }
    removed += now;
    if (now == 0) break;
  }
  ProjectStore(assets.database()).remove_trashed(before_ms);
  return removed;
}

void add_gallery_routes(Router& router, ApiContext& api) {
  using Answer = HttpResponse (*)(const ServerRequest&, ApiContext&);
  struct Entry {
    const char *method, *pattern, *summary;
    Answer answer;
    std::vector<std::string> arguments = {};
    const char* body = "";
  };
  const std::vector<Entry> entries = {
      {"GET",
       "/api/v1/assets",
       "search images, newest first",
       list_assets,
       {"project", "board", "kind", "starred", "tag", "q", "model", "lora", "seed", "width", "height", "from", "to", "trash",
        "sort", "limit", "cursor"}},
      {"GET", "/api/v1/assets/{id}", "an image, mask or upload",
       [](const ServerRequest& request, ApiContext& a) { return HttpResponse::json(item_to_json(item_of(request, a))); }},
      {"PATCH",
       "/api/v1/assets/{id}",
       "change its name, star, tags, board or project",
       change_asset,
       {},
       R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":["string","null"]},"starred":{"type":["boolean","null"]},
           "tags":{"type":["array","null"],"items":{"type":"string"}},"board_id":{"type":["string","null"]},"project_id":{"type":["string","null"]}}})"},
      {"DELETE",
       "/api/v1/assets/{id}",
       "put it into the trash; permanent=1 deletes it at once",
       [](const ServerRequest& request, ApiContext& a) {
         const bool permanent = flag_argument(request, "permanent").value_or(false);
         delete_item(item_of(request, a), permanent, flag_argument(request, "force").value_or(false), a);
         return HttpResponse::empty(204);
       },
       {"permanent", "force"}},
      {"POST", "/api/v1/assets/{id}/restore", "take it out of the trash",
       [](const ServerRequest& request, ApiContext& a) {
         return HttpResponse::json(item_to_json(restore_item(item_of(request, a), a)));
       }},
      {"GET", "/api/v1/assets/{id}/meta", "the settings that its file contains", metadata_of_asset},
      {"GET", "/api/v1/assets/{id}/lineage", "what it was made from, and what was made from it", lineage_of_asset},
      {"POST",
       "/api/v1/assets/bulk",
       "change or delete many images",
       change_many,
       {},
       R"({"type":"object","additionalProperties":false,"required":["ids","action"],"properties":{"ids":{"type":"array","items":{"type":"string"}},
           "action":{"enum":["star","unstar","tag","untag","move","trash","restore","delete"]},"tags":{"type":["array","null"],"items":{"type":"string"}},
           "board_id":{"type":["string","null"]},"project_id":{"type":["string","null"]},"force":{"type":["boolean","null"]}}})"},
      {"DELETE", "/api/v1/trash", "empty the trash", empty_trash, {"project"}},
      {"GET", "/api/v1/tags", "all tags with the number of their images", list_tags, {"project"}},
  };
  for (const Entry& entry : entries)
    router.add(
        {.method = entry.method,
         .pattern = entry.pattern,
         .handler = answering([answer = entry.answer, &api](const ServerRequest& request) { return answer(request, api); }),
         .scope = Scope::Generate,
         .summary = entry.summary,
         .arguments = entry.arguments,
         .body = entry.body});
}

}  // namespace flux2
