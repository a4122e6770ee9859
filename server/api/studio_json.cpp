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

Json element_to_json(const Element& element) {
  Json images = Json::array();
  for (const std::string& image : element.images) images.push_back("ast_" + image);
  const Json thumb = images.empty() ? Json(nullptr) : Json("/api/v1/assets/" + images[0].get<std::string>() + "/thumb");
  return {{"id", "elm_" + element.id},
          {"project_id", text_or_null("prj_", element.project)},
          {"name", element.name},
          {"type", element.type},
          {"trigger", element.trigger},
          {"description", element.description},
          {"weight_note", element.weight_note},
          {"loras", element.loras},
          {"max_refs", element.max_refs},
          {"images", images},
          {"thumb_url", thumb},
          {"created_at", time_or_null(element.created)},
          {"updated_at", time_or_null(element.updated)}};
}

Json scene_to_json(const StoryScene& scene) {
  return {{"id", "scn_" + scene.id},
          {"project_id", text_or_null("prj_", scene.project)},
          {"position", scene.position},
          {"name", scene.name},
          {"text", scene.text}};
}

Json shot_to_json(const Shot& shot, const std::string& status) {
  Json json = {{"id", "sht_" + shot.id},
               {"project_id", text_or_null("prj_", shot.project)},
               {"scene_id", text_or_null("scn_", shot.scene)},
               {"position", shot.position}};
  for (const char* name : {"action", "prompt", "negative", "dialogue", "character", "shot_type"})
    json[name] = shot.fields.value(name, Json(""));
  for (const char* name : {"seed", "width", "height", "steps", "guidance"}) json[name] = shot.fields.value(name, Json(nullptr));
  json["num_frames"] = shot.fields.value("num_frames", Json(1));
  json["matched_elements"] = Json::array();
  for (const Json& match : shot.matched)
    json["matched_elements"].push_back({{"element_id", "elm_" + match.value("element", std::string())},
                                        {"name", match.value("name", std::string())},
                                        {"score", match.value("score", 0.0)},
                                        {"source", match.value("source", std::string())}});
  json["status"] = status;
  json["last_job_id"] = text_or_null("job_", shot.last_job);
  json["thumbnail_asset_id"] = text_or_null("ast_", shot.thumbnail);
  json["thumb_url"] = shot.thumbnail.empty() ? Json(nullptr) : Json("/api/v1/assets/ast_" + shot.thumbnail + "/thumb");
  json["created_at"] = time_or_null(shot.created);
  return json;
}

std::optional<std::string> project_id_in(const std::string& text) {
  if (text == kDefaultProject) return std::string();
  const std::string id = id_without_prefix(text, "prj_");
  return id.empty() ? std::nullopt : std::optional(id);
}

std::string project_id_text(const std::string& id) { return id.empty() ? kDefaultProject : "prj_" + id; }

}  // namespace flux2
