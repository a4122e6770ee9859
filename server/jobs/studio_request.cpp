#include "server/jobs/studio_request.h"

#include "server/store/ids.h"
#include "server/store/project_store.h"

namespace flux2 {

namespace {

// The project that a request names; nothing if it names none, or none that exists.
std::optional<Project> project_named(Json& request, SqlDatabase& database, std::vector<HttpError::FieldProblem>& problems) {
  const auto found = request.find("project_id");
  if (found == request.end() || !found->is_string()) return std::nullopt;
  const auto text = found->get<std::string>();
  if (text == "default") {
    request.erase("project_id");
    return std::nullopt;
  }
  const std::string id = id_without_prefix(text, "prj_");
  auto project = id.empty() ? std::nullopt : ProjectStore(database).get(id);
  if (project && project->deleted == 0) return project;
  problems.push_back({"project_id", project ? "the project is in the trash" : "project not found"});
  return std::nullopt;
}

// What the request leaves out. A size is left to references and to the image that is changed, which have one.
void fill_defaults(Json& request, const Json& settings) {
  const auto has_any = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (request.contains(name)) return true;
    return false;
  };
  const bool sized = has_any({"width", "height", "size", "match", "references", "canvas"});
  for (const char* name : {"width", "height"})
    if (!sized && settings.contains(name)) request[name] = settings[name];
  for (const char* name : {"seed", "model", "negative"})
    if (settings.contains(name) && settings[name] != "" && !request.contains(name)) request[name] = settings[name];
}

}  // namespace

void resolve_in_studio(Json& request, AssetStore& assets, std::vector<HttpError::FieldProblem>& problems) {
  const auto project = project_named(request, assets.database(), problems);
  // "style": false is about the project; a text names a style of the configuration.
  bool styled = true;
  if (const auto style = request.find("style"); style != request.end() && style->is_boolean()) {
    styled = style->get<bool>();
    request.erase("style");
  }
  if (project) fill_defaults(request, project->settings);
  const auto prompt = request.find("prompt");
  if (prompt == request.end() || !prompt->is_string()) return;
  const auto sent = prompt->get<std::string>();
  std::string final_prompt = sent;
  if (const std::string style = project ? project->settings.value("style_prompt", std::string()) : ""; styled && !style.empty())
    final_prompt += (final_prompt.empty() ? "" : ", ") + style;
  if (final_prompt == sent) return;
  request["prompt"] = final_prompt;
  request[kResolution] = {{"sent_prompt", sent}};
}

std::string project_in_request(const Json& request) {
  if (!request.is_object()) return {};
  const auto found = request.find("project_id");
  return found != request.end() && found->is_string() ? id_without_prefix(found->get<std::string>(), "prj_") : std::string();
}

Json request_as_sent(const Json& request) {
  if (!request.is_object() || !request.contains(kResolution)) return request;
  Json sent = request;
  sent["prompt"] = request[kResolution].value("sent_prompt", Json(request.value("prompt", std::string())));
  sent.erase(kResolution);
  return sent;
}

Json resolution_report(const Json& request) { return {{"prompt", request.value("prompt", std::string())}}; }

}  // namespace flux2
