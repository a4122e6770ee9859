#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "app/adapters.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/service_mask.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/api/waiting_client.h"
#include "server/http/errors.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_request.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/studio_request.h"
#include "server/store/asset_catalog.h"
#include "server/store/element_store.h"
#include "server/store/ids.h"
#include "server/store/job_images.h"

namespace flux2 {

namespace {

constexpr int kMostCancelled = 10000;  // at a time
constexpr size_t kLongestId = 64;

HttpResponse list_jobs(const ServerRequest& request, ApiContext& api) {
  JobFilter filter;
  filter.state = request.argument("state").value_or("");
  constexpr std::array<std::string_view, 7> kStates = {"", "queued", "running", "cancelling", "completed", "failed", "cancelled"};
  if (std::find(kStates.begin(), kStates.end(), filter.state) == kStates.end())
    throw HttpError(400, "invalid_request", "state must be queued, running, cancelling, completed, failed or cancelled", "state");
  filter.kind = request.argument("kind").value_or("");
  const std::vector<std::string>& kinds = job_kinds();
  if (!filter.kind.empty() && std::find(kinds.begin(), kinds.end(), filter.kind) == kinds.end())
    throw HttpError(400, "invalid_request", fmt::format("kind must be one of {}", fmt::join(kinds, ", ")), "kind");
  const auto project = project_argument(request);
  filter.project = project.value_or("");
  filter.default_project = project == "";
  std::string before = request.argument("before").value_or(request.argument("cursor").value_or(""));
  if (!before.empty()) {
    filter.before = id_without_prefix(before, "job_");
    if (filter.before.empty()) throw HttpError(400, "invalid_request", "before must be the id of a job", "before");
  }
  filter.limit = static_cast<int>(integer_argument(request, "limit", 1, 200).value_or(50));
  const std::vector<Job> jobs = api.queue.store().list(filter);
  Json items = Json::array();
  for (const Job& job : jobs) items.push_back(job_to_json(job, api.queue.store()));
  Json next = nullptr;
  if (jobs.size() == static_cast<size_t>(filter.limit)) next = "job_" + jobs.back().id;
  return HttpResponse::json({{"items", items}, {"next", next}, {"total", nullptr}});
}

// Downloads, conversions and training begin with routes for managers, and so only managers end or repeat them.
bool may_change(const ServerRequest& request, const Job& job) {
  return request.caller.scope >= Scope::Manage || (job.lane == "gpu" && job.kind != "train");
}

void check_may_change(const ServerRequest& request, const Job& job) {
  if (!may_change(request, job)) throw HttpError(403, "forbidden", "The key does not allow this request.");
}

HttpResponse cancel_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  check_may_change(request, job);
  if (job.is_final()) throw HttpError(409, "already_final", "the job is already " + job.state);
  const auto after = api.queue.cancel(job.id);
  if (!after) throw HttpError(404, "not_found", "job not found");
  return HttpResponse::json(job_to_json(*after, api.queue.store()), after->is_final() ? 200 : 202);
}

// Those that wait or run, of one project if it is given.
std::vector<Job> jobs_to_cancel(const std::optional<std::string>& project, ApiContext& api) {
  JobFilter filter;
  filter.project = project.value_or("");
  filter.default_project = project == "";
  filter.limit = kMostCancelled;
  std::vector<Job> jobs;
  for (const char* state : {"queued", "running"}) {
    filter.state = state;
    for (Job& job : api.queue.store().list(filter)) jobs.push_back(std::move(job));
  }
  return jobs;
}

HttpResponse cancel_jobs(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  BodyMembers members(body, {"ids", "project", "all"});
  const auto ids = members.texts("ids", kMostCancelled, kLongestId);
  const auto project = members.text("project", kLongestId);
  const bool all = members.flag("all").value_or(false);
  const auto project_id = project ? project_id_in(*project) : std::nullopt;
  if (project && !project_id) members.wrong("project", "must be the id of a project, or default");
  if (ids.has_value() + project.has_value() + all != 1)
    members.wrong("ids", R"(name the jobs with one of ids, project and "all": true)");
  std::vector<Job> jobs;
  for (const std::string& id : ids.value_or(std::vector<std::string>())) {
    const std::string bare = id_without_prefix(id, "job_");
    if (bare.empty()) members.wrong("ids", "must be a list of job ids");
    else if (auto job = api.queue.store().get(bare)) jobs.push_back(std::move(*job));
  }
  members.check_all();
  for (const Job& job : jobs) check_may_change(request, job);
  if (!ids) {
    jobs = jobs_to_cancel(project_id, api);
    std::erase_if(jobs, [&](const Job& job) { return !may_change(request, job); });
  }
  Json cancelled = Json::array();
  for (const Job& job : jobs)
    if (!job.is_final() && api.queue.cancel(job.id)) cancelled.push_back("job_" + job.id);
  return HttpResponse::json({{"cancelled", cancelled}});
}

HttpResponse change_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  const Json body = json_body(request, api.app);
  if (body.size() != 1 || !body.contains("priority") || !body["priority"].is_number_integer() ||
      body["priority"].get<double>() < -1000 || body["priority"].get<double>() > 1000)
    throw HttpError(400, "invalid_request", "only priority can be changed; it must be a whole number from -1000 to 1000",
                    "priority");
  if (!api.queue.store().set_priority(job.id, body["priority"].get<int>()))
    throw HttpError(409, "not_queued", "the job is no longer queued: it is " + job.state);
  return HttpResponse::json(job_to_json(*api.queue.store().get(job.id), api.queue.store()));
}

HttpResponse delete_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  check_may_change(request, job);
  if (!api.queue.store().remove(job.id)) throw HttpError(409, "not_final", "the job is " + job.state + "; cancel it first");
  return HttpResponse::empty(204);
}

HttpResponse image_of_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  for (const JobImage& image : job.images)
    if (std::to_string(image.index) == request.parameter("n")) {
      const auto item = AssetCatalog(api.queue.assets().database()).get(image.asset);
      if (!item || item->asset.missing || item->deleted != 0) throw HttpError(410, "gone", "the image was deleted");
      const Asset* asset = &item->asset;
      HttpResponse response;
      const bool thumb = request.argument("thumb").value_or("") == "1";
      response.file = thumb ? api.queue.assets().thumbnail(*asset) : api.queue.assets().path_of(*asset);
      response.content_type = thumb ? (response.file.extension() == ".webp" ? "image/webp" : "image/jpeg") : asset->mime;
      response.etag = '"' + asset->sha256 + (thumb ? "-t" : "") + '"';
      response.headers = {{"cache-control", "private, max-age=31536000, immutable"},
                          {"content-disposition", "inline; filename=" + asset->id + response.file.extension().string()}};
      return response;
    }
  throw HttpError(404, "not_found", fmt::format("the job has {} images", job.images.size()));
}

// The file stays while another job shows the same image.
HttpResponse delete_image_of_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  if (!job.is_final()) throw HttpError(409, "not_final", "the job is " + job.state + "; cancel it first");
  for (const JobImage& image : job.images) {
    if (std::to_string(image.index) != request.parameter("n")) continue;
    SqlDatabase& database = api.queue.assets().database();
    const auto dropped = drop_job_image(database, job.id, image.index);
    const bool in_element = dropped && !ElementStore(database).names_using(dropped->asset).empty();
    if (dropped && !dropped->is_used && !in_element && AssetCatalog(database).trash(dropped->asset, now_ms()))
      api.queue.events().publish("asset.deleted", {{"id", "ast_" + dropped->asset}, {"trash", true}});
    return HttpResponse::empty(204);
  }
  throw HttpError(404, "not_found", fmt::format("the job has {} images", job.images.size()));
}

HttpResponse preview_of_job(const ServerRequest& request, ApiContext& api) {
  const Job job = job_of(request, api);
  const auto preview = api.queue.preview(job.id);
  if (!preview) return HttpResponse::empty(204);
  HttpResponse response;
  response.content_type = preview->mime;
  response.body = preview->bytes;
  response.etag = fmt::format("\"{}-{}-{}\"", job.id, preview->index, preview->step);
  response.headers = {{"cache-control", "no-store"}};
  return response;
}

Json queue_json(ApiContext& api) {
  JobStore& store = api.queue.store();
  Json lanes = Json::object();
  for (const char* lane : {"gpu", "net", "cpu"}) {
    Json running = Json::array();
    for (const Job& job : store.list({.state = "running", .kind = {}, .project = {}, .before = {}, .limit = 200}))
      if (job.lane == lane) running.push_back("job_" + job.id);
    lanes[lane] = {{"running", running}, {"queued", store.counts(lane).queued}};
  }
  Json order = Json::array();
  for (const Job& job : store.waiting("gpu")) order.push_back("job_" + job.id);
  return {{"paused", store.paused()}, {"lanes", lanes}, {"order", order}};
}

HttpResponse reorder_queue(const ServerRequest& request, ApiContext& api) {
  const Json body = json_body(request, api.app);
  if (!body.contains("order") || !body["order"].is_array())
    throw HttpError(400, "invalid_request", "order must be a list of job ids", "order");
  std::vector<std::string> ids;
  for (const Json& id : body["order"]) {
    const std::string bare = id.is_string() ? id_without_prefix(id.get<std::string>(), "job_") : "";
    if (bare.empty()) throw HttpError(400, "invalid_request", "order must be a list of job ids", "order");
    ids.push_back(bare);
  }
  api.queue.store().reorder(ids);
  return HttpResponse::json(queue_json(api));
}

HttpResponse pause_queue(bool paused, ApiContext& api) {
  api.queue.store().set_paused(paused);
  if (!paused) api.queue.wake();
  api.queue.publish_queue();
  return HttpResponse::json(queue_json(api));
}

}  // namespace

Json json_body(const ServerRequest& request, const AppContext& app) {
  const std::string_view type = request.header("content-type");
  if (!type.empty() && type.find("json") == type.npos && !type.starts_with("text/plain"))
    throw HttpError(415, "unsupported_media_type", "the body must be application/json");
  return object_in_body(request, app);
}

Job job_of(const ServerRequest& request, ApiContext& api) {
  const std::string id = id_without_prefix(request.parameter("id"), "job_");
  const auto job = id.empty() ? std::nullopt : api.queue.store().get(id);
  if (!job) throw HttpError(404, "not_found", "job not found");
  return *job;
}

std::string kind_of(const Json& request) {
  if (request.contains("kind") && request["kind"].is_string()) return request["kind"].get<std::string>();
  return request.contains("canvas") && !request["canvas"].is_null() ? "inpaint" : "generate";
}

namespace {

JobStore::Inserted submit_checked(const Json& checked, const Json& sent, const std::string& kind,
                                  const std::vector<std::string>& warnings, const ServerRequest& from, ApiContext& api,
                                  const std::string& one_of = {}) {
  // A model that does not exist is refused now, not when it is the turn.
  const std::string model = api.models.find(checked.value("model", std::string())).id;
  settings_of_job(checked, api.queue.assets(), api.app);  // and so are adapters
  JobQueue::Submission submission;
  submission.request = checked;
  submission.model_key = model;
  submission.kind = kind;
  submission.idempotency_key = std::string(from.header("idempotency-key"));
  if (!submission.idempotency_key.empty() && !one_of.empty()) submission.idempotency_key += "/" + one_of;
  submission.client_ref = checked.value("client_ref", std::string());
  submission.priority = checked.value("priority", 0);
  submission.sent = sent.dump();
  submission.warnings = warnings;
  submission.caller = from.caller;
  return api.queue.submit(submission);
}

}  // namespace

JobStore::Inserted submit_native(const Json& request, const ServerRequest& from, ApiContext& api) {
  const std::string kind = kind_of(request);
  std::vector<std::string> warnings;
  Json checked = check_job_request(request, kind, api.queue.assets(), api.app, warnings);
  add_service_mask(checked, api);
  return submit_checked(checked, request, kind, warnings, from, api);
}

JobStore::Inserted submit_for_studio(const Json& request, const std::string& kind, const Json& link, const ServerRequest& from,
                                     ApiContext& api, const std::string& one_of) {
  std::vector<std::string> warnings;
  Json checked = check_job_request(request, "generate", api.queue.assets(), api.app, warnings);
  if (!checked.contains(kResolution)) checked[kResolution] = {{"sent_prompt", checked["prompt"]}};
  for (const auto& [name, value] : link.items()) checked[kResolution][name] = value;
  return submit_checked(checked, {{"request", request}, {"link", link}}, kind, warnings, from, api, one_of);
}

void add_job_routes(Router& router, ApiContext& api) {
  const auto add = [&](const char* method, const char* pattern, const char* summary,
                       HttpResponse (*answer)(const ServerRequest&, ApiContext&), uint64_t body_limit = 1 << 20,
                       const char* body = "") {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering([answer, &api](const ServerRequest& request) { return answer(request, api); }),
                .scope = Scope::Generate,
                .body_limit = body_limit,
                .summary = summary,
                .body = body});
  };
  add(
      "POST", "/api/v1/jobs", "submit a job",
      [](const ServerRequest& request, ApiContext& a) {
        const auto inserted = submit_native(json_body(request, a.app), request, a);
        HttpResponse response = HttpResponse::json(job_to_json(inserted.job, a.queue.store()), inserted.existed ? 200 : 202);
        response.headers.push_back({"location", "/api/v1/jobs/job_" + inserted.job.id});
        return response;
      },
      kImageBody);
  add("GET", "/api/v1/jobs", "list jobs, newest first", list_jobs);
  add("POST", "/api/v1/jobs/cancel", "cancel several jobs: those of ids, of a project, or all", cancel_jobs, 1 << 20,
      R"({"type":"object","additionalProperties":false,"properties":{"ids":{"type":["array","null"],"items":{"type":"string"}},
          "project":{"type":["string","null"]},"all":{"type":["boolean","null"]}}})");
  add("GET", "/api/v1/jobs/{id}", "one job", [](const ServerRequest& request, ApiContext& a) {
    return HttpResponse::json(job_to_json(job_of(request, a), a.queue.store()));
  });
  add("DELETE", "/api/v1/jobs/{id}", "remove a finished job from the list", delete_job);
  add("PATCH", "/api/v1/jobs/{id}", "change the priority of a waiting job", change_job);
  add("POST", "/api/v1/jobs/{id}/cancel", "cancel a job", cancel_job);
  add("POST", "/api/v1/jobs/{id}/retry", "submit the same request again, with the same seed",
      [](const ServerRequest& request, ApiContext& a) {
        const Job job = job_of(request, a);
        check_may_change(request, job);
        return HttpResponse::json(job_to_json(a.queue.retry(job.id, request.caller), a.queue.store()), 202);
      });
  add("GET", "/api/v1/jobs/{id}/preview", "the newest preview", preview_of_job);
  add("GET", "/api/v1/jobs/{id}/images/{n}", "result image n; thumb=1 for a small one", image_of_job);
  add("DELETE", "/api/v1/jobs/{id}/images/{n}", "remove an image from a job; its file goes if no other job shows it",
      delete_image_of_job);
  add("GET", "/api/v1/queue", "the order of waiting jobs",
      [](const ServerRequest&, ApiContext& a) { return HttpResponse::json(queue_json(a)); });
  add("PATCH", "/api/v1/queue", "change the order of waiting jobs", reorder_queue);
  add("POST", "/api/v1/queue/pause", "start no more jobs",
      [](const ServerRequest&, ApiContext& a) { return pause_queue(true, a); });
  add("POST", "/api/v1/queue/resume", "start jobs again",
      [](const ServerRequest&, ApiContext& a) { return pause_queue(false, a); });
}

}  // namespace flux2
