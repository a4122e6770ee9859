#include "server/api/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "record/generation_record.h"
#include "server/jobs/job_members.h"

namespace flux2 {

namespace {

Json error_schema() {
  return {{"type", "object"},
          {"required", {"error"}},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", {"code", "message"}},
              {"properties",
               {{"code", {{"type", {"string", "null"}}}},
                {"message", {{"type", "string"}}},
                {"hint", {{"type", "string"}}},
                {"request_id", {{"type", "string"}}},
                {"fields", {{"type", "array"}, {"items", {{"type", "object"}}}}}}}}}}}};
}

Json schema_of(const JobMember& member) {
  Json schema = {{"type", {member.type, "null"}}, {"description", member.help}};
  if (member.type == "array") schema["items"] = Json::object();
  if (member.name == "regions") {
    const Json text = {{"type", "string"}};
    schema["items"] = {{"type", "object"},
                       {"required", {"prompt"}},
                       {"properties",
                        {{"prompt", text},
                         {"box", {{"type", {"array", "null"}}, {"items", {{"type", "integer"}}}}},
                         {"mask", {{"type", {"string", "null"}}}},
                         {"references", {{"type", {"array", "null"}}, {"items", text}}}}}};
  }
  if (member.name == "image_prompts") {
    const auto number = [](int high) { return Json{{"type", {"number", "null"}}, {"minimum", 0}, {"maximum", high}}; };
    schema["items"] = {
        {"type", "object"},
        {"required", {"image"}},
        {"properties", {{"image", {{"type", "string"}}}, {"strength", number(2)}, {"from", number(1)}, {"to", number(1)}}}};
  }
  // Some members have a short form as well: a text instead of an object or a list.
  if (member.name == "preview" || member.name == "metadata" || member.name == "extend") schema["type"].push_back("string");
  if (member.name == "match" || member.name == "seed") schema["type"] = {"integer", "string", "null"};
  if (member.name == "align") schema["type"].push_back("string");
  if (!member.choices.empty()) {
    schema["enum"] = member.choices;
    schema["enum"].push_back(nullptr);
    const bool is_switch = std::find(member.choices.begin(), member.choices.end(), "on") != member.choices.end();
    if (is_switch) {  // true and false are accepted as well
      schema["type"].push_back("boolean");
      for (const bool value : {true, false}) schema["enum"].push_back(value);
    }
  }
  return schema;
}

Json job_request_schema() {
  Json properties = Json::object();
  for (const JobMember& member : job_members()) properties[member.name] = schema_of(member);
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

Json job_schema() {
  const Json text_or_null = {{"type", {"string", "null"}}}, number = {{"type", "number"}}, integer = {{"type", "integer"}};
  return {{"type", "object"},
          {"required", {"id", "kind", "state", "progress", "images", "created_at"}},
          {"properties",
           {{"id", {{"type", "string"}, {"pattern", "^job_[0-9A-HJKMNP-TV-Z]{26}$"}}},
            {"kind", {{"type", "string"}}},
            {"state", {{"type", "string"}, {"enum", {"queued", "running", "cancelling", "completed", "failed", "cancelled"}}}},
            {"phase", text_or_null},
            {"progress", number},
            {"step", integer},
            {"steps", integer},
            {"message", text_or_null},
            {"priority", integer},
            {"created_at", {{"type", "string"}, {"format", "date-time"}}},
            {"started_at", text_or_null},
            {"finished_at", text_or_null},
            {"images", {{"type", "array"}, {"items", {{"type", "object"}}}}},
            {"warnings", {{"type", "array"}, {"items", {{"type", "string"}}}}},
            {"error", {{"type", {"object", "null"}}}}}}};
}

Json plan_schema() {
  const Json text = {{"type", "string"}}, number = {{"type", "number"}}, integer = {{"type", "integer"}};
  const auto described = [](Json schema, const char* meaning) {
    schema["description"] = meaning;
    return schema;
  };
  const Json phase = {{"type", "object"},
                      {"properties", {{"name", text}, {"seconds", number}, {"device", integer}, {"host", integer}}}};
  const Json suggestion = {{"type", "object"}, {"properties", {{"set", {{"type", "object"}}}, {"peak_device", integer}}}};
  return {{"type", "object"},
          {"required",
           {"model", "device", "fits", "limit_gib", "phases", "total_seconds", "peak_device", "peak_host", "available",
            "placement", "notes", "images"}},
          {"properties",
           {{"model", described(text, "the model that the job would use")},
            {"device", described(text, "where it would run")},
            {"placement", described(text, "which parts of the model stay in memory, in words")},
            {"fits", described({{"type", "boolean"}}, "whether the memory at the worst moment is within the limit")},
            {"limit_gib", described(number, "the memory that the server may use, in GiB: its setting, else what the device has")},
            {"available", described(integer, "the same in bytes")},
            {"peak_device", described(integer, "bytes on a GPU at the worst moment; 0 on a CPU")},
            {"peak_host", described(integer, "bytes on a CPU at the worst moment; 0 on a GPU")},
            {"total_seconds", number},
            {"phases", {{"type", "array"}, {"items", phase}}},
            {"images", integer},
            {"notes", {{"type", "array"}, {"items", text}}},
            {"needs", described(integer, "bytes at the worst moment; only if it does not fit")},
            {"suggest", described({{"type", "array"}, {"items", suggestion}}, "settings that fit; only if it does not fit")}}}};
}

// "GET /api/v1/jobs/{id}" → "getJobsId", which code generators use as the name of a function.
std::string operation_id(const Route& route) {
  std::string id;
  for (const char c : route.method) id += static_cast<char>(std::tolower(c));
  bool upper = true;
  for (const char c : route.pattern) {
    if (!std::isalnum(static_cast<unsigned char>(c))) upper = true;
    else id += upper ? static_cast<char>(std::toupper(c)) : c, upper = false;
  }
  return id;
}

Json parameters_of(const Route& route) {
  Json parameters = Json::array();
  for (size_t open = route.pattern.find('{'); open != std::string::npos; open = route.pattern.find('{', open + 1)) {
    const std::string name = route.pattern.substr(open + 1, route.pattern.find('}', open) - open - 1);
    parameters.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  for (const std::string& name : route.arguments)
    parameters.push_back({{"name", name}, {"in", "query"}, {"required", false}, {"schema", {{"type", "string"}}}});
  return parameters;
}

Json operation_of(const Route& route) {
  const bool is_events = route.pattern.ends_with("/events");
  const bool is_image = route.pattern.ends_with("/file") || route.pattern.ends_with("/thumb") ||
                        route.pattern.ends_with("/preview") || route.pattern.find("/images/{") != std::string::npos;
  Json content = {{"application/json", {{"schema", {{"type", "object"}}}}}};
  if (is_events) content = {{"text/event-stream", {{"schema", {{"type", "string"}}}}}};
  if (is_image) content = {{"image/*", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  if (route.pattern.ends_with("/checkpoints/{step}/file"))
    content = {{"application/octet-stream", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  if (route.pattern.starts_with("/api/v1/mask/") && route.method == "POST")
    content["image/png"] = {{"schema", {{"type", "string"}, {"format", "binary"}}}};
  if (route.pattern == "/api/v1/upscale") content = {{"image/png", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  if (route.pattern.ends_with("/export"))
    content = {{"application/zip", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  if (route.pattern == "/metrics") content = {{"text/plain", {{"schema", {{"type", "string"}}}}}};
  const bool is_job = route.pattern == "/api/v1/jobs/{id}" && route.method == "GET";
  if (is_job) content["application/json"]["schema"] = {{"$ref", "#/components/schemas/Job"}};
  if (route.pattern == "/api/v1/plan") content["application/json"]["schema"] = {{"$ref", "#/components/schemas/Plan"}};
  Json operation = {{"operationId", operation_id(route)},
                    {"summary", route.summary},
                    {"responses",
                     {{"2XX", {{"description", "done"}, {"content", content}}},
                      {"204", {{"description", "done; the answer has no body"}}},
                      {"304", {{"description", "unchanged"}}},
                      {"default",
                       {{"description", "an error"},
                        {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}}}}}};
  if (const Json parameters = parameters_of(route); !parameters.empty()) operation["parameters"] = parameters;
  const bool is_request = route.method == "POST" && (route.pattern == "/api/v1/jobs" || route.pattern == "/api/v1/plan" ||
                                                     route.pattern == "/api/v1/resolve");
  if (is_request)
    operation["requestBody"] = {{"required", true},
                                {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/JobRequest"}}}}}}}};
  else if (route.method == "PATCH" || ((route.method == "POST" || route.method == "PUT") && !route.body.empty()))
    operation["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json", {{"schema", route.body.empty() ? Json({{"type", "object"}}) : Json::parse(route.body)}}}}}};
  if (!route.form.empty()) {
    operation["requestBody"]["required"] = true;
    operation["requestBody"]["content"]["multipart/form-data"] = {{"schema", Json::parse(route.form)}};
  }
  return operation;
}

}  // namespace

Json openapi_document(const Router& router) {
  Json paths = Json::object();
  for (const Route& route : router.routes()) {
    const Family family = family_of(route.pattern);
    if (route.summary.empty() || (family != Family::Native && family != Family::OpenAi && !route.pattern.starts_with("/health") &&
                                  route.pattern != "/readyz" && route.pattern != "/metrics"))
      continue;
    std::string method = route.method;
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return std::tolower(c); });
    paths[route.pattern][method] = operation_of(route);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "flux2"},
            {"version", program_version()},
            {"description",
             "Generates and edits images with FLUX.2 models. Jobs are submitted, run one after the other, and report "
             "their progress as server-sent events."}}},
          {"paths", paths},
          {"components",
           {{"schemas",
             {{"Error", error_schema()}, {"Job", job_schema()}, {"JobRequest", job_request_schema()}, {"Plan", plan_schema()}}},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({Json{{"key", Json::array()}}, Json::object()})}};
}

void add_openapi_routes(Router& router) {
  const auto text = std::make_shared<std::string>();
  for (const char* pattern : {"/api/v1/openapi.json", "/openapi.json"})
    router.add({.method = "GET",
                .pattern = pattern,
                .handler = answering([text](const ServerRequest&) {
                  HttpResponse response;
                  response.body = *text;
                  return response;
                }),
                .scope = Scope::None,
                .summary = pattern == std::string("/openapi.json") ? "" : "this document"});
  *text = openapi_document(router).dump();
}

}  // namespace flux2
