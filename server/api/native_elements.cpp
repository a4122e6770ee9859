#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/api/waiting_client.h"
#include "server/http/errors.h"
#include "server/jobs/job_request.h"
#include "server/jobs/request_images.h"
#include "server/jobs/studio_request.h"
#include "server/store/ids.h"
#include "server/store/triggers.h"

namespace flux2 {

namespace {

constexpr size_t kLongestDescription = 8000;
constexpr size_t kMostElementLoras = 16;
const std::vector<std::string> kElementTypes = {"character", "location", "object", "style"};

constexpr const char* kElementBody =
    R"({"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},
        "type":{"enum":["character","location","object","style"]},"trigger":{"type":["string","null"]},
        "description":{"type":["string","null"]},"weight_note":{"type":["string","null"]},"max_refs":{"type":["integer","null"]},
        "images":{"type":["array","null"],"items":{"type":"string"}},"loras":{"type":["array","null"],"items":{"type":"object",
        "additionalProperties":false,"required":["name"],"properties":{"name":{"type":"string"},"weight":{"type":["number","null"]}}}}}})";

ElementStore element_store(ApiContext& api) { return ElementStore(api.queue.assets().database()); }

Element element_of(const ServerRequest& request, ApiContext& api) {
  const std::string id = id_without_prefix(request.parameter("id"), "elm_");
  auto element = id.empty() ? std::nullopt : element_store(api).get(id);
  if (!element) throw HttpError(404, "not_found", "element not found");
  return std::move(*element);
}

// An asset that can be the image of an element.
std::string asset_for_element(const std::string& text, const std::string& param, ApiContext& api) {
  std::string id = id_without_prefix(text, "ast_");
  const auto item = id.empty() ? std::nullopt : AssetCatalog(api.queue.assets().database()).get(id);
  if (!item || item->deleted != 0 || item->asset.missing)
    throw HttpError(400, "invalid_request", fmt::format("{}: image {} not found", param, printable(text)), param);
  return id;
}

void read_loras(const Json& body, BodyMembers& members, Element& element) {
  if (!members.has("loras")) return;
  element.loras = Json::array();
  const Json& list = body["loras"];
  if (list.is_null()) return;
  const auto is_lora = [](const Json& lora) {
    if (!lora.is_object() || !lora.contains("name") || !lora["name"].is_string()) return false;
    const std::string& name = lora["name"].get_ref<const std::string&>();
    if (name.empty() || name.size() > kLongestName || name.find('\0') != std::string::npos) return false;
    for (const auto& [key, value] : lora.items())
      if (key != "name" && (key != "weight" || (!value.is_number() && !value.is_null()))) return false;
    return true;
  };
  if (!list.is_array() || list.size() > kMostElementLoras || !std::all_of(list.begin(), list.end(), is_lora))
    return members.wrong("loras", fmt::format("must be a list of at most {} {{\"name\", \"weight\"}}", kMostElementLoras));
  for (const Json& lora : list) {
    element.loras.push_back({{"name", lora["name"]}});
    if (lora.contains("weight") && !lora["weight"].is_null()) element.loras.back()["weight"] = lora["weight"];
  }
}

// Members that are absent stay as they are.
void read_element_members(const Json& body, Element& element, ApiContext& api) {
  BodyMembers members(body, {"name", "type", "trigger", "description", "weight_note", "max_refs", "images", "loras"});
  if (members.has("name") || element.name.empty()) {
    element.name = trimmed(members.text("name", kLongestName).value_or(""));
    if (element.name.empty()) members.wrong("name", "must not be empty");
  }
  if (members.has("type") || element.type.empty()) {
    element.type = members.text("type", 20).value_or("");
    if (std::find(kElementTypes.begin(), kElementTypes.end(), element.type) == kElementTypes.end())
      members.wrong("type", fmt::format("must be one of {}", fmt::join(kElementTypes, ", ")));
  }
  if (members.has("trigger") || element.trigger.empty()) {
    const auto trigger = members.text("trigger", 300);
    element.trigger = trigger ? std::string(trimmed(*trigger)) : trigger_of_name(element.name);
    if (!is_trigger(element.trigger)) members.wrong("trigger", "must be @ and 1 to 40 letters, digits, _ or -");
  }
  if (members.has("description")) element.description = members.text("description", kLongestDescription).value_or("");
  if (members.has("weight_note")) element.weight_note = members.text("weight_note", kLongestDescription).value_or("");
  if (members.has("max_refs")) element.max_refs = members.integer("max_refs", 0, 16).value_or(1);
  read_loras(body, members, element);
  const auto images = members.texts("images", kMostElementImages, 64);
  members.check_all();
  if (!members.has("images")) return;
  element.images.clear();
  for (const std::string& image : images.value_or(std::vector<std::string>())) {
    const std::string id = asset_for_element(image, "images", api);
    if (std::find(element.images.begin(), element.images.end(), id) == element.images.end()) element.images.push_back(id);
  }
}

template <class Write>
void write_element(const Element& element, ApiContext& api, const char* event, Write&& write) {
  try {
    write();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::Refused) throw HttpError(409, "trigger_taken", e.what(), "trigger");
    throw;
  }
  api.queue.events().publish(event, element_to_json(element));
}

HttpResponse list_elements(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  Json items = Json::array();
  for (const Element& element : element_store(api).list(project.id, flag_argument(request, "include_shared").value_or(false)))
    items.push_back(element_to_json(element));
  return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
}

HttpResponse create_element(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  Element element;
  element.project = project.id;
  read_element_members(json_body(request, api.app), element, api);
  if (element_store(api).count(project.id) >= kMostElements)
    throw HttpError(409, "too_many_elements", fmt::format("a project can have at most {} elements", kMostElements));
  element.id = new_id();
  element.created = element.updated = now_ms();
  write_element(element, api, "element.created", [&] { element_store(api).insert(element); });
  HttpResponse response = HttpResponse::json(element_to_json(element), 201);
  response.headers.push_back({"location", "/api/v1/elements/elm_" + element.id});
  return response;
}

HttpResponse change_element(const ServerRequest& request, ApiContext& api) {
  Element element = element_of(request, api);
  read_element_members(json_body(request, api.app), element, api);
  element.updated = now_ms();
  write_element(element, api, "element.updated", [&] { element_store(api).save(element); });
  return HttpResponse::json(element_to_json(element));
}

HttpResponse delete_element(const ServerRequest& request, ApiContext& api) {
  const Element element = element_of(request, api);
  element_store(api).remove(element.id);
  api.queue.events().publish("element.deleted", {{"id", "elm_" + element.id}});
  return HttpResponse::empty(204);
}

// The image that a request brings: a part of a form, or "image" of a JSON body.
std::string image_in_request(const ServerRequest& request, const Element& element, ApiContext& api) {
  if (request.is_multipart) {
    for (const FormPart& part : request.parts)
      if (part.name == "file" || part.name == "image")
        return stored_part(part, "upload", api.queue.assets(), "file", element.project).substr(std::string_view("asset:").size());
    throw HttpError(400, "invalid_request", "the form has no part \"file\"", "file");
  }
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"image", "asset_id"});
  const auto image = members.text("image", kImageBody), asset = members.text("asset_id", 64);
  if (!image && !asset) members.wrong("image", "must be an image: asset:ID, a data URL or base64");
  members.check_all();
  if (asset) return asset_for_element(*asset, "asset_id", api);
  const std::string stored = stored_image(*image, "upload", api.queue.assets(), api.app, "image");
  return asset_for_element("ast_" + stored.substr(std::string_view("asset:").size()), "image", api);
}

HttpResponse add_image_to_element(const ServerRequest& request, ApiContext& api) {
  const Element element = element_of(request, api);
  if (element.images.size() >= kMostElementImages)
    throw HttpError(409, "too_many_images", fmt::format("an element can have at most {} images", kMostElementImages));
  element_store(api).add_image(element.id, image_in_request(request, element, api), now_ms());
  const Element after = element_of(request, api);
  api.queue.events().publish("element.updated", element_to_json(after));
  return HttpResponse::json(element_to_json(after), 201);
}

HttpResponse remove_image_of_element(const ServerRequest& request, ApiContext& api) {
  const Element element = element_of(request, api);
  const std::string asset = id_without_prefix(request.parameter("asset"), "ast_");
  if (asset.empty() || !element_store(api).remove_image(element.id, asset, now_ms()))
    throw HttpError(404, "not_found", "the element has no such image");
  api.queue.events().publish("element.updated", element_to_json(element_of(request, api)));
  return HttpResponse::empty(204);
}

// How an image that shows an element alone is asked for.
std::string prompt_that_shows(const Element& element) {
  const std::string what = element.description.empty() ? element.name : element.name + ": " + element.description;
  if (element.type == "character")
    return fmt::format(
        "Character turnaround of {}. Full body, front view, side view and back view, plain light background, even "
        "light",
        what);
  if (element.type == "location") return fmt::format("Wide establishing view of {}. No people", what);
  if (element.type == "object") return fmt::format("Studio product view of {}. Plain light background, soft light", what);
  return fmt::format("A table with a bowl of fruit beside a window, in this style: {}", what);
}

HttpResponse visualize_element(const ServerRequest& request, ApiContext& api) {
  const Element element = element_of(request, api);
  const Json body = request.body.empty() ? Json::object() : json_body(request, api.app);
  BodyMembers members(body, {"prompt", "count", "seed", "width", "height", "steps", "model"});
  members.check_all();
  Json job = Json::object();
  for (const auto& [name, value] : body.items())
    if (!value.is_null()) job[name] = value;
  if (!job.contains("prompt")) job["prompt"] = prompt_that_shows(element);
  if (!element.project.empty()) job["project_id"] = "prj_" + element.project;
  job["style"] = false;
  const auto inserted = submit_for_studio(job, "element_visual", {{"element", element.id}}, request, api);
  HttpResponse response = HttpResponse::json(job_to_json(inserted.job, api.queue.store()), inserted.existed ? 200 : 202);
  response.headers.push_back({"location", "/api/v1/jobs/job_" + inserted.job.id});
  return response;
}

// What a job with this request would use. The images of the request itself are stored, as a job does it.
HttpResponse resolve_prompt(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  std::vector<std::string> warnings;
  const Json checked = check_job_request(body, kind_of(body), api.queue.assets(), api.app, warnings);
  Json report = resolution_report(checked);
  report["warnings"] = warnings;
  return HttpResponse::json(report);
}

}  // namespace

void add_element_routes(Router& router, ApiContext& api) {
  using Answer = HttpResponse (*)(const ServerRequest&, ApiContext&);
  struct Entry {
    const char *method, *pattern, *summary;
    Answer answer;
    std::vector<std::string> arguments = {};
    const char *body = "", *form = "";
    uint64_t limit = 1 << 20;
  };
  std::string required = kElementBody;
  required.replace(required.find("\"properties\""), 0, R"("required":["name","type"],)");
  const std::vector<Entry> entries = {
      {"GET",
       "/api/v1/projects/{id}/elements",
       "its elements; include_shared=1 adds those of the default project",
       list_elements,
       {"include_shared"}},
      {"POST",
       "/api/v1/projects/{id}/elements",
       "create an element; those of the default project are shared by all",
       create_element,
       {},
       required.c_str()},
      {"GET", "/api/v1/elements/{id}", "one element",
       [](const ServerRequest& request, ApiContext& a) { return HttpResponse::json(element_to_json(element_of(request, a))); }},
      {"PATCH",
       "/api/v1/elements/{id}",
       "change an element; images sets their order, the main one first",
       change_element,
       {},
       kElementBody},
      {"DELETE", "/api/v1/elements/{id}", "remove an element; its images stay in the gallery", delete_element},
      {"POST",
       "/api/v1/elements/{id}/images",
       "add an image: the part \"file\" of a form, or JSON",
       add_image_to_element,
       {},
       R"({"type":"object","additionalProperties":false,"properties":{"image":{"type":"string"},"asset_id":{"type":"string"}}})",
       R"({"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"binary"}}})",
       kImageBody},
      {"DELETE", "/api/v1/elements/{id}/images/{asset}", "take an image away; it stays in the gallery", remove_image_of_element},
      {"POST",
       "/api/v1/elements/{id}/visualize",
       "generate images of it; they become its images",
       visualize_element,
       {},
       R"({"type":"object","additionalProperties":false,"properties":{"prompt":{"type":["string","null"]},"count":{"type":["integer","null"]},
           "seed":{"type":["integer","null"]},"width":{"type":["integer","null"]},"height":{"type":["integer","null"]},
           "steps":{"type":["integer","null"]},"model":{"type":["string","null"]}}})"},
      {"POST",
       "/api/v1/resolve",
       "what a job with this request would use: final prompt, references, matched elements",
       resolve_prompt,
       {},
       "",
       "",
       kImageBody},
  };
  for (const Entry& entry : entries)
    router.add(
        {.method = entry.method,
         .pattern = entry.pattern,
         .handler = answering([answer = entry.answer, &api](const ServerRequest& request) { return answer(request, api); }),
         .scope = Scope::Generate,
         .body_limit = entry.limit,
         .summary = entry.summary,
         .arguments = entry.arguments,
         .body = entry.body,
         .form = entry.form});
}

}  // namespace flux2
