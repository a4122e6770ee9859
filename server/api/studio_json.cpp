#include "server/api/studio_json.h"

#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr const char* kDefaultProject = "default";

Json text_or_null(const std::string& prefix, const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(prefix + text);
}

Json time_or_null(int64_t ms) { return ms == 0 ? Json(nullptr) : Json(rfc3339(ms)); }

}  // namespace

Json item_to_json(const CatalogItem& item) {
  const Asset& asset = item.asset;
  const std::string id = "ast_" + asset.id;
  return {{"id", id},
          {"image", "asset:" + asset.id},
          {"project_id", text_or_null("prj_", asset.project)},
          {"kind", asset.kind},
          {"name", item.name},
          {"mime", asset.mime},
          {"bytes", asset.bytes},
          {"sha256", asset.sha256},
          {"width", asset.width},
          {"height", asset.height},
          {"prompt", item.prompt},
          {"model", text_or_null("", item.model)},
          {"loras", item.loras},
          {"seed", item.seed < 0 ? Json(nullptr) : Json(item.seed)},
          {"starred", item.starred},
          {"tags", item.tags},
          {"board_id", text_or_null("brd_", item.board)},
          {"job_id", text_or_null("job_", asset.job)},
          {"parent_id", text_or_null("ast_", asset.parent)},
          {"created_at", rfc3339(asset.created)},
          {"deleted_at", time_or_null(item.deleted)},
          {"missing", asset.missing},
          {"url", "/api/v1/assets/" + id + "/file"},
          {"thumb_url", "/api/v1/assets/" + id + "/thumb"}};
}

Json project_to_json(const Project& project) {
  Json json = {{"id", project_id_text(project.id)},           {"name", project.name},
               {"created_at", time_or_null(project.created)}, {"updated_at", time_or_null(project.updated)},
               {"deleted_at", time_or_null(project.deleted)}, {"images", project.images}};
  for (const char* name : {"width", "height", "seed", "model"}) json[name] = project.settings.value(name, Json(nullptr));
  for (const char* name : {"style_prompt", "negative", "notes"}) json[name] = project.settings.value(name, Json(""));
  return json;
}

Json board_to_json(const Board& board) {
  return {{"id", "brd_" + board.id}, {"project_id", text_or_null("prj_", board.project)},
          {"name", board.name},      {"position", board.position},
          {"images", board.images},  {"cover_asset_id", text_or_null("ast_", board.cover)}};
}

std::optional<std::string> project_id_in(const std::string& text) {
  if (text == kDefaultProject) return std::string();
  const std::string id = id_without_prefix(text, "prj_");
  return id.empty() ? std::nullopt : std::optional(id);
}

std::string project_id_text(const std::string& id) { return id.empty() ? kDefaultProject : "prj_" + id; }

}  // namespace flux2
