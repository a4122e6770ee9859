#include "server/jobs/studio_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/store/ids.h"
#include "server/store/project_store.h"

namespace flux2 {

namespace {

constexpr const char* kAssetPrefix = "asset:";
constexpr size_t kMostNamed = 64;

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

ElementOptions element_options(const Json& request) {
  ElementOptions options;
  const auto flag = [&](const char* name) -> std::optional<bool> {
    const auto found = request.find(name);
    return found != request.end() && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
  };
  const auto text = [&](const char* name) {
    const auto found = request.find(name);
    return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  options.scan = flag("scan_triggers").value_or(true);
  options.number_refs = flag("number_refs");
  if (text("scan_scope") == "project") options.scope = ElementOptions::Scope::Project;
  if (text("scan_scope") == "all") options.scope = ElementOptions::Scope::All;
  if (text("element_text") == "name") options.text = ElementOptions::Text::Name;
  if (text("element_text") == "keep") options.text = ElementOptions::Text::Keep;
  return options;
}

// What is not a list of texts is refused later, with the other members.
std::vector<std::string> named_elements(const Json& request) {
  std::vector<std::string> names;
  if (const auto found = request.find("elements"); found != request.end() && found->is_array() && found->size() <= kMostNamed)
    for (const Json& name : *found)
      if (name.is_string()) names.push_back(name.get<std::string>());
  return names;
}

// The assets that a checked request has as references.
std::vector<std::string> own_references(const Json& request) {
  std::vector<std::string> assets;
  if (const auto found = request.find("references"); found != request.end() && found->is_array())
    for (const Json& image : *found) assets.push_back(image.get<std::string>().substr(std::string_view(kAssetPrefix).size()));
  return assets;
}

// What changes is noted in `sent` as it was; null: it was absent.
void write_references(Json& request, const ComposedPrompt& composed, Json& sent) {
  if (composed.references.empty()) return;
  const bool had_none = !request.contains("references");
  sent["references"] = request.value("references", Json(nullptr));
  Json references = Json::array();
  for (const ComposedPrompt::Reference& reference : composed.references) references.push_back(kAssetPrefix + reference.asset);
  request["references"] = references;
  // An element's image shows how something looks. It does not say how large the new image is.
  const bool sized = request.contains("width") || request.contains("height") || request.contains("size") ||
                     request.contains("match") || request.contains("canvas");
  if (!had_none || sized) return;
  sent["match"] = nullptr;
  request["match"] = "off";
}

void add_adapters(Json& request, const std::vector<Element>& elements, Json& sent) {
  const auto name_in = [](const Json& lora) {
    if (lora.is_object()) return lora.value("name", std::string());
    const std::string text = lora.is_string() ? lora.get<std::string>() : std::string();
    return text.substr(0, text.find(':'));
  };
  const Json before = request.value("loras", Json(nullptr));
  Json loras = before.is_array() ? before : Json::array();
  for (const Element& element : elements)
    for (const Json& lora : element.loras) {
      const bool is_there =
          std::any_of(loras.begin(), loras.end(), [&](const Json& one) { return name_in(one) == name_in(lora); });
      if (!is_there) loras.push_back(lora);
    }
  if (loras.size() == (before.is_array() ? before.size() : 0)) return;
  sent["loras"] = before;
  request["loras"] = loras;
}

Json matched_json(const ElementsInPrompt& found) {
  Json list = Json::array();
  for (const ElementMatch& match : found.matches) {
    const Element& element = found.elements[match.element];
    list.push_back({{"element_id", "elm_" + element.id},
                    {"name", element.name},
                    {"trigger", element.trigger},
                    {"start", match.start},
                    {"end", match.stop}});
  }
  return list;
}

Json suggestions_json(const ElementsInPrompt& found) {
  Json list = Json::array();
  for (const Element& element : found.suggestions)
    list.push_back({{"element_id", "elm_" + element.id},
                    {"name", element.name},
                    {"trigger", element.trigger},
                    {"project_id", element.project.empty() ? Json(nullptr) : Json("prj_" + element.project)}});
  return list;
}

}  // namespace

StudioResolution resolve_in_studio(Json& request, AssetStore& assets, std::vector<HttpError::FieldProblem>& problems) {
  StudioResolution resolution;
  const auto project = project_named(request, assets.database(), problems);
  // "style": false is about the project; a text names a style of the configuration.
  bool styled = true;
  if (const auto style = request.find("style"); style != request.end() && style->is_boolean()) {
    styled = style->get<bool>();
    request.erase("style");
  }
  if (project) fill_defaults(request, project->settings);
  if (project && styled) resolution.style = project->settings.value("style_prompt", std::string());
  resolution.options = element_options(request);
  const auto prompt = request.find("prompt");
  if (prompt == request.end() || !prompt->is_string()) return resolution;
  resolution.found = find_elements(prompt->get<std::string>(), named_elements(request), project ? project->id : "",
                                   resolution.options, assets, problems);
  return resolution;
}

void finish_in_studio(Json& request, const StudioResolution& resolution, const AssetStore& assets, const RequestLimits& limits,
                      std::vector<std::string>& warnings) {
  const ElementsInPrompt& found = resolution.found;
  if (found.is_empty() && resolution.style.empty()) return;
  const auto sent_prompt = request["prompt"].get<std::string>();
  Json sent = Json::object();
  ComposedPrompt composed{.prompt = sent_prompt, .references = {}, .warnings = {}};
  if (!found.elements.empty()) {
    const bool counts_canvas = request.contains("canvas") && request.value("context", std::string("refs")) != "none";
    composed = compose(sent_prompt, found, own_references(request), resolution.options, limits.references, counts_canvas ? 2 : 1,
                       assets);
    write_references(request, composed, sent);
    add_adapters(request, found.elements, sent);
  }
  std::string final_prompt = composed.prompt;
  if (!resolution.style.empty()) final_prompt += (final_prompt.empty() ? "" : ", ") + resolution.style;
  if (static_cast<int64_t>(final_prompt.size()) > limits.prompt_bytes)
    throw HttpError(400, "invalid_request",
                    fmt::format("prompt: with the texts of its elements and its project the prompt has {} bytes; at most {} are "
                                "possible",
                                final_prompt.size(), limits.prompt_bytes),
                    "prompt");
  Json notes = found.warnings;
  for (const std::string& warning : composed.warnings) notes.push_back(warning);
  for (const Json& note : notes) warnings.push_back(note.get<std::string>());
  request["prompt"] = final_prompt;
  request[kResolution] = {{"sent_prompt", sent_prompt},
                          {"sent", sent},
                          {"warnings", notes},
                          {"matched", matched_json(found)},
                          {"suggestions", suggestions_json(found)},
                          {"elements", Json::array()}};
  for (const ComposedPrompt::Reference& reference : composed.references)
    request[kResolution]["elements"].push_back(reference.element);
}

std::string project_in_request(const Json& request) {
  if (!request.is_object()) return {};
  const auto found = request.find("project_id");
  return found != request.end() && found->is_string() ? id_without_prefix(found->get<std::string>(), "prj_") : std::string();
}

Json request_as_sent(const Json& request) {
  if (!request.is_object() || !request.contains(kResolution)) return request;
  Json before = request;
  const Json& resolution = request[kResolution];
  before["prompt"] = resolution.value("sent_prompt", Json(request.value("prompt", std::string())));
  if (const auto sent = resolution.find("sent"); sent != resolution.end() && sent->is_object())
    for (const auto& [name, value] : sent->items()) {
      if (value.is_null()) before.erase(name);
      else before[name] = value;
    }
  before.erase(kResolution);
  return before;
}

Json resolution_report(const Json& request) {
  const Json resolution = request.value(kResolution, Json::object());
  Json references = Json::array();
  const Json elements = resolution.value("elements", Json::array());
  const std::vector<std::string> assets = own_references(request);
  for (size_t i = 0; i < assets.size(); ++i) {
    const std::string element = i < elements.size() ? elements[i].get<std::string>() : std::string();
    Json reference = {{"asset_id", "ast_" + assets[i]}, {"source", element.empty() ? "explicit" : "element"}};
    if (!element.empty()) reference["element_id"] = "elm_" + element;
    references.push_back(reference);
  }
  return {{"prompt", request.value("prompt", std::string())},
          {"references", references},
          {"loras", request.value("loras", Json::array())},
          {"matched", resolution.value("matched", Json::array())},
          {"suggestions", resolution.value("suggestions", Json::array())},
          {"warnings", resolution.value("warnings", Json::array())}};
}

}  // namespace flux2
