#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/http/errors.h"
#include "server/jobs/shots.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr size_t kLongestShotText = 8000;
constexpr int64_t kFarthestPosition = 1'000'000;
constexpr int kThumbWidth = 512, kThumbHeight = 320, kThumbSeed = 42;
constexpr size_t kMostThumbnails = 200;

constexpr const char* kSceneBody =
    R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},"text":{"type":["string","null"]},
        "position":{"type":["integer","null"]}}})";
constexpr const char* kShotBody =
    R"({"type":"object","additionalProperties":false,"properties":{"scene_id":{"type":["string","null"]},"position":{"type":["integer","null"]},
        "action":{"type":["string","null"]},"prompt":{"type":["string","null"]},"negative":{"type":["string","null"]},
        "dialogue":{"type":["string","null"]},"character":{"type":["string","null"]},"shot_type":{"type":["string","null"]},
        "seed":{"type":["integer","null"]},"width":{"type":["integer","null"]},"height":{"type":["integer","null"]},
        "num_frames":{"type":["integer","null"]},"steps":{"type":["integer","null"]},"guidance":{"type":["number","null"]}}})";

ShotStore shot_store(ApiContext& api) { return ShotStore(api.queue.assets().database()); }

StoryScene scene_named(const std::string& text, ApiContext& api) {
  const std::string id = id_without_prefix(text, "scn_");
  auto scene = id.empty() ? std::nullopt : shot_store(api).scene(id);
  if (!scene) throw HttpError(404, "not_found", "scene not found");
  return std::move(*scene);
}

Shot shot_named(const std::string& text, ApiContext& api) {
  const std::string id = id_without_prefix(text, "sht_");
  auto shot = id.empty() ? std::nullopt : shot_store(api).get(id);
  if (!shot) throw HttpError(404, "not_found", "shot not found");
  return std::move(*shot);
}

Json shot_json(const Shot& shot, ApiContext& api) {
  const auto job = shot.last_job.empty() ? std::nullopt : api.queue.store().get(shot.last_job);
  return shot_to_json(shot, job ? job->state : "new");
}

void check_room(const std::string& project, ApiContext& api) {
  if (shot_store(api).count(project) >= kMostShots)
    throw HttpError(409, "too_many_shots", fmt::format("a project can have at most {} scenes and shots", kMostShots));
}

// ---- scenes ----

void read_scene_members(const Json& body, StoryScene& scene) {
  BodyMembers members(body, {"name", "text", "position"});
  if (members.has("name") || scene.name.empty()) {
    scene.name = trimmed(members.text("name", kLongestName).value_or(""));
    if (scene.name.empty()) members.wrong("name", "must not be empty");
  }
  if (members.has("text")) scene.text = members.text("text", kLongestShotText).value_or("");
  scene.position = members.integer("position", -kFarthestPosition, kFarthestPosition).value_or(scene.position);
  members.check_all();
}

HttpResponse list_scenes(const ServerRequest& request, ApiContext& api) {
  Json items = Json::array();
  for (const StoryScene& scene : shot_store(api).scenes(project_in_path(request, api).id)) items.push_back(scene_to_json(scene));
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

HttpResponse create_scene(const ServerRequest& request, ApiContext& api) {
  StoryScene scene;
  scene.project = project_in_path(request, api).id;
  read_scene_members(json_body(request, api.app), scene);
  check_room(scene.project, api);
  scene.id = new_id();
  shot_store(api).insert_scene(scene);
  const StoryScene made = scene_named("scn_" + scene.id, api);
  api.queue.events().publish("scene.created", scene_to_json(made));
  return HttpResponse::json(scene_to_json(made), 201);
}

HttpResponse change_scene(const ServerRequest& request, ApiContext& api) {
  StoryScene scene = scene_named(request.parameter("id"), api);
  read_scene_members(json_body(request, api.app), scene);
  shot_store(api).save_scene(scene);
  api.queue.events().publish("scene.updated", scene_to_json(scene));
  return HttpResponse::json(scene_to_json(scene));
}

HttpResponse delete_scene(const ServerRequest& request, ApiContext& api) {
  const StoryScene scene = scene_named(request.parameter("id"), api);
  shot_store(api).remove_scene(scene.id);
  api.queue.events().publish("scene.deleted", {{"id", "scn_" + scene.id}});
  return HttpResponse::empty(204);
}

// ---- shots ----

void read_shot_members(const Json& body, Shot& shot, ApiContext& api) {
  BodyMembers members(body, {"scene_id", "position", "action", "prompt", "negative", "dialogue", "character", "shot_type", "seed",
                             "width", "height", "num_frames", "steps", "guidance"});
  const auto set = [&](const char* name, const auto& value) {
    if (value) shot.fields[name] = *value;
    else if (members.is_null(name)) shot.fields.erase(name);
  };
  for (const char* name : {"action", "prompt", "negative", "dialogue", "character", "shot_type"})
    set(name, members.text(name, kLongestShotText));
  set("seed", members.integer("seed", 0, std::numeric_limits<int64_t>::max()));
  for (const char* name : {"width", "height"}) set(name, members.integer(name, 64, 4096));
  set("num_frames", members.integer("num_frames", 1, 100'000));
  set("steps", members.integer("steps", 1, 256));
  if (members.has("guidance")) {
    const Json& guidance = body["guidance"];
    if (guidance.is_null()) shot.fields.erase("guidance");
    else if (guidance.is_number() && guidance.get<double>() >= 0 && guidance.get<double>() <= 100)
      shot.fields["guidance"] = guidance;
    else members.wrong("guidance", "must be a number from 0 to 100");
  }
  shot.position = members.integer("position", -kFarthestPosition, kFarthestPosition).value_or(shot.position);
  const auto scene = members.text("scene_id", 64);
  members.check_all();
  if (members.is_null("scene_id")) shot.scene.clear();
  if (!scene) return;
  const std::string id = id_without_prefix(*scene, "scn_");
  const auto found = id.empty() ? std::nullopt : shot_store(api).scene(id);
  if (!found || found->project != shot.project)
    throw HttpError(400, "invalid_request", "scene_id: the project has no such scene", "scene_id");
  shot.scene = id;
}

HttpResponse list_shots(const ServerRequest& request, ApiContext& api) {
  Json items = Json::array();
  for (const Shot& shot : shot_store(api).list(project_in_path(request, api).id)) items.push_back(shot_json(shot, api));
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

HttpResponse create_shot(const ServerRequest& request, ApiContext& api) {
  Shot shot;
  shot.project = project_in_path(request, api).id;
  read_shot_members(json_body(request, api.app), shot, api);
  check_room(shot.project, api);
  shot.id = new_id();
  shot.created = now_ms();
  shot_store(api).insert(shot);
  const Shot made = shot_named("sht_" + shot.id, api);
  api.queue.events().publish("shot.created", shot_json(made, api));
  HttpResponse response = HttpResponse::json(shot_json(made, api), 201);
  response.headers.push_back({"location", "/api/v1/shots/sht_" + shot.id});
  return response;
}

HttpResponse change_shot(const ServerRequest& request, ApiContext& api) {
  Shot shot = shot_named(request.parameter("id"), api);
  read_shot_members(json_body(request, api.app), shot, api);
  shot_store(api).save(shot);
  api.queue.events().publish("shot.updated", shot_json(shot, api));
  return HttpResponse::json(shot_json(shot, api));
}

HttpResponse delete_shot(const ServerRequest& request, ApiContext& api) {
  const Shot shot = shot_named(request.parameter("id"), api);
  shot_store(api).remove(shot.id);
  api.queue.events().publish("shot.deleted", {{"id", "sht_" + shot.id}});
  return HttpResponse::empty(204);
}

// ---- what they show ----

Json matched_rows(const std::vector<ElementScore>& matches) {
  Json rows = Json::array();
  for (const ElementScore& match : matches)
    rows.push_back(
        {{"element", match.element->id}, {"name", match.element->name}, {"score", match.score}, {"source", match.source}});
  return rows;
}

HttpResponse match_shots(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  const std::vector<Element> elements = ElementStore(api.queue.assets().database()).list(project.id, true);
  Json items = Json::array();
  for (Shot& shot : shot_store(api).list(project.id)) {
    const auto scene = shot.scene.empty() ? std::nullopt : shot_store(api).scene(shot.scene);
    shot.matched = matched_rows(match_elements(shot, scene ? scene->name : "", elements));
    shot_store(api).set_matched(shot.id, shot.matched);
    items.push_back(shot_json(shot, api));
  }
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

// The elements that were found in a shot and still exist.
std::vector<Element> elements_of_shot(const Shot& shot, ApiContext& api) {
  std::vector<Element> found;
  const ElementStore store(api.queue.assets().database());
  for (const Json& match : shot.matched)
    if (auto element = store.get(match.value("element", std::string()))) found.push_back(std::move(*element));
  return found;
}

std::string action_before(const Shot& shot, ApiContext& api) {
  std::string before;
  for (const Shot& other : shot_store(api).list(shot.project)) {
    if (other.id == shot.id) return before;
    before = other.scene == shot.scene ? other.fields.value("action", std::string()) : std::string();
  }
  return {};
}

Json request_of_shot(const Shot& shot, const std::string& prompt, const std::vector<Element>& elements) {
  Json job = {{"prompt", prompt}};
  for (const char* name : {"negative", "seed", "width", "height", "steps", "guidance"}) {
    const auto found = shot.fields.find(name);
    if (found == shot.fields.end() || (found->is_string() && found->get_ref<const std::string&>().empty())) continue;
    job[name] = *found;
  }
  if (!shot.project.empty()) job["project_id"] = "prj_" + shot.project;
  for (const Element& element : elements)
    if (element.type != "location") job["elements"].push_back("elm_" + element.id);  // places are in the text
  return job;
}

JobStore::Inserted submit_shot(const Shot& shot, const Json& job, const Json& link, const ServerRequest& request, ApiContext& api,
                               const std::string& one_of = {}) {
  auto inserted = submit_for_studio(job, "shot", link, request, api, one_of);
  shot_store(api).set_last_job(shot.id, inserted.job.id);
  api.queue.events().publish("shot.updated", shot_json(shot_named("sht_" + shot.id, api), api));
  return inserted;
}

ShotParts read_parts(BodyMembers& members) {
  const auto names = members.texts("parts", 6, 20);
  if (!names) return {};
  ShotParts parts{.scene = false, .shot_type = false, .character = false, .dialogue = false, .setting = false, .context = false};
  const std::vector<std::pair<const char*, bool*>> known = {{"scene", &parts.scene},         {"shot_type", &parts.shot_type},
                                                            {"character", &parts.character}, {"dialogue", &parts.dialogue},
                                                            {"setting", &parts.setting},     {"context", &parts.context}};
  for (const std::string& name : *names) {
    const auto part = std::find_if(known.begin(), known.end(), [&](const auto& one) { return name == one.first; });
    if (part == known.end()) members.wrong("parts", "must be of scene, shot_type, character, dialogue, setting, context");
    else *part->second = true;
  }
  return parts;
}

HttpResponse generate_shot(const ServerRequest& request, ApiContext& api) {
  const Shot shot = shot_named(request.parameter("id"), api);
  const Json body = request.body.empty() ? Json::object() : json_body(request, api.app);
  BodyMembers members(body, {"parts", "seed", "count", "model"});
  const ShotParts parts = read_parts(members);
  members.check_all();
  if (const int64_t frames = shot.fields.value("num_frames", int64_t{1}); frames != 1)
    throw HttpError(501, "video_not_available",
                    fmt::format("the shot has {} frames, and this server makes single images; set num_frames to 1", frames));
  const std::vector<Element> elements = elements_of_shot(shot, api);
  std::vector<Element> places;
  for (const Element& element : elements)
    if (element.type == "location") places.push_back(element);
  const auto scene = shot.scene.empty() ? std::nullopt : shot_store(api).scene(shot.scene);
  Json job =
      request_of_shot(shot, shot_prompt(shot, scene ? scene->name : "", places, action_before(shot, api), parts), elements);
  for (const char* name : {"seed", "count", "model"})
    if (members.has(name) && !members.is_null(name)) job[name] = body[name];
  const auto inserted = submit_shot(shot, job, {{"shot", shot.id}}, request, api);
  HttpResponse response = HttpResponse::json(job_to_json(inserted.job, api.queue.store()), inserted.existed ? 200 : 202);
  response.headers.push_back({"location", "/api/v1/jobs/job_" + inserted.job.id});
  return response;
}

// All or none: who is refused sends the same list again, and would get some images twice.
void check_room_for(size_t jobs, ApiContext& api) {
  const auto counts = api.queue.store().counts("gpu");
  const int64_t room = std::max<int64_t>(api.queue.limit() - counts.running - counts.queued, 0);
  if (static_cast<int64_t>(jobs) > room)
    throw HttpError(429, "queue_full", fmt::format("the queue has room for {} more jobs, but {} are needed", room, jobs));
}

HttpResponse make_thumbnails(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"ids", "width", "height", "force"});
  const auto ids = members.texts("ids", kMostThumbnails, 64);
  const bool force = members.flag("force").value_or(false);
  const int64_t width = members.integer("width", 64, 4096).value_or(kThumbWidth),
                height = members.integer("height", 64, 4096).value_or(kThumbHeight);
  if (!ids || ids->empty()) members.wrong("ids", "must be a list of ids of shots");
  members.check_all();
  std::vector<Shot> shots;  // all are looked up before the first job is submitted
  for (const std::string& id : *ids) shots.push_back(shot_named(id, api));
  Json jobs = Json::array(), skipped = Json::array();
  std::erase_if(shots, [&](const Shot& shot) {
    const bool skips = !shot.thumbnail.empty() && !force;
    if (skips) skipped.push_back("sht_" + shot.id);
    return skips;
  });
  if (request.header("idempotency-key").empty()) check_room_for(shots.size(), api);
  for (const Shot& shot : shots) {
    Json job = request_of_shot(shot, thumbnail_prompt(shot), elements_of_shot(shot, api));
    job["width"] = width, job["height"] = height;
    if (!job.contains("seed")) job["seed"] = kThumbSeed;
    jobs.push_back("job_" + submit_shot(shot, job, {{"shot", shot.id}, {"thumbnail", true}}, request, api, shot.id).job.id);
  }
  return HttpResponse::json({{"jobs", jobs}, {"skipped", skipped}}, jobs.empty() ? 200 : 202);
}

}  // namespace

void add_shot_routes(Router& router, ApiContext& api) {
  const auto add = [&](const char* method, const char* pattern, const char* summary,
                       HttpResponse (*answer)(const ServerRequest&, ApiContext&), const std::string& body = "") {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering([answer, &api](const ServerRequest& request) { return answer(request, api); }),
                .scope = Scope::Generate,
                .summary = summary,
                .body = body});
  };
  std::string new_scene = kSceneBody;
  new_scene.replace(new_scene.find("\"properties\""), 0, R"("required":["name"],)");
  add("GET", "/api/v1/projects/{id}/scenes", "its scenes", list_scenes);
  add("POST", "/api/v1/projects/{id}/scenes", "create a scene", create_scene, new_scene);
  add("PATCH", "/api/v1/scenes/{id}", "change a scene", change_scene, kSceneBody);
  add("DELETE", "/api/v1/scenes/{id}", "remove a scene; its shots stay", delete_scene);
  add("GET", "/api/v1/projects/{id}/shots", "its shots, in the order of the scenes", list_shots);
  add("POST", "/api/v1/projects/{id}/shots", "create a shot", create_shot, kShotBody);
  add("POST", "/api/v1/projects/{id}/match-elements", "find the elements that each shot shows", match_shots);
  add("GET", "/api/v1/shots/{id}", "one shot", [](const ServerRequest& request, ApiContext& a) {
    return HttpResponse::json(shot_json(shot_named(request.parameter("id"), a), a));
  });
  add("PATCH", "/api/v1/shots/{id}", "change a shot", change_shot, kShotBody);
  add("DELETE", "/api/v1/shots/{id}", "remove a shot; its images stay", delete_shot);
  add("POST", "/api/v1/shots/{id}/generate", "generate the image of a shot", generate_shot,
      R"({"type":"object","additionalProperties":false,"properties":{"parts":{"type":["array","null"],"items":{"enum":["scene","shot_type",
          "character","dialogue","setting","context"]}},"seed":{"type":["integer","null"]},"count":{"type":["integer","null"]},
          "model":{"type":["string","null"]}}})");
  add("POST", "/api/v1/shots/thumbnails", "queue quick drawings of shots", make_thumbnails,
      R"({"type":"object","additionalProperties":false,"required":["ids"],"properties":{"ids":{"type":"array","items":{"type":"string"}},
          "width":{"type":["integer","null"]},"height":{"type":["integer","null"]},"force":{"type":["boolean","null"]}}})");
}

}  // namespace flux2
