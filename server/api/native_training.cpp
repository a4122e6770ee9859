#include "server/api/native_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "server/api/native.h"
#include "server/http/errors.h"
#include "server/jobs/metric_buckets.h"
#include "server/jobs/training_job.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr int64_t kMostRunSteps = 1'000'000'000;

std::optional<int64_t> step_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 0 || value > kMostRunSteps) return std::nullopt;
  return value;
}

int64_t number_argument(const ServerRequest& request, const char* name, int64_t low, int64_t otherwise,
                        int64_t high = kMostRunSteps) {
  const auto text = request.argument(name);
  if (!text || text->empty()) return otherwise;
  const auto value = step_number(*text);
  if (!value || *value < low || *value > high)
    throw HttpError(400, "invalid_request", fmt::format("{} must be a whole number from {} to {}", name, low, high), name);
  return *value;
}

Run run_of(const ServerRequest& request, TrainingRuns& runs) {
  return runs.get(id_without_prefix(request.parameter("id"), "run_"));
}

int64_t step_of(const ServerRequest& request) {
  const auto step = step_number(request.parameter("step"));
  if (!step) throw HttpError(404, "not_found", "checkpoint not found");
  return *step;
}

HttpResponse start_run(const ServerRequest& request, ApiContext& api, TrainingRuns& runs) {
  const TrainingRequest asked = check_training_request(json_body(request, api.app), runs.allowed());
  const Json& model = asked.stored["model"];
  api.models.find(model.is_string() ? model.get<std::string>() : "");  // one that does not exist is refused now
  if (asked.dry) return HttpResponse::json(runs.forecast(asked));
  const Run run = runs.create(asked);
  HttpResponse response = HttpResponse::json(run_to_json(run), 201);
  response.headers.push_back({"location", "/api/v1/training/run_" + run.id});
  return response;
}

HttpResponse list_runs(const ServerRequest& request, TrainingRuns& runs) {
  const std::string cursor = request.argument("cursor").value_or("");
  const std::string before = cursor.empty() ? "" : id_without_prefix(cursor, "run_");
  if (!cursor.empty() && before.empty()) throw HttpError(400, "invalid_request", "cursor must be the id of a run", "cursor");
  const auto limit = static_cast<size_t>(number_argument(request, "limit", 1, 50, 200));
  const std::vector<Run> found = runs.store().list(before, static_cast<int>(limit));
  Json items = Json::array();
  for (const Run& run : found) items.push_back(run_to_json(run));
  return HttpResponse::json(
      {{"items", items}, {"next", found.size() == limit ? Json("run_" + found.back().id) : Json(nullptr)}, {"total", nullptr}});
}

HttpResponse metrics_of(const ServerRequest& request, TrainingRuns& runs) {
  const Run run = run_of(request, runs);
  std::vector<std::string> keys;
  const std::string asked = request.argument("keys").value_or("");
  for (size_t begin = 0; begin < asked.size();) {
    const size_t end = std::min(asked.find(',', begin), asked.size());
    keys.push_back(asked.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto& names = metric_names();
  for (const std::string& key : keys)
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw HttpError(400, "invalid_request", fmt::format("keys must be a list of {}", fmt::join(names, ", ")), "keys");
  if (keys.empty()) keys = names;
  BucketRange range{.from = number_argument(request, "from", 0, 0),
                    .to = number_argument(request, "to", 0, kMostRunSteps),
                    .max = number_argument(request, "max", 1, 2000, 10'000)};
  if (range.from > range.to) throw HttpError(400, "invalid_request", "from must not be greater than to", "from");
  const std::vector<RunMetric> metrics = runs.store().metrics(run.id, range.from, range.to);
  // The width of a bucket depends on the steps that there are, unless the request says where it ends.
  if (!request.argument("to") || request.argument("to")->empty()) range.to = metrics.empty() ? range.from : metrics.back().step;
  return HttpResponse::json(metric_buckets(metrics, range, keys));
}

HttpResponse samples_of(const ServerRequest& request, TrainingRuns& runs) {
  Json list = Json::array();
  for (const StoredSample& sample : runs.store().samples(run_of(request, runs).id))
    list.push_back({{"step", sample.step},
                    {"index", sample.index},
                    {"prompt", sample.prompt},
                    {"seed", sample.seed},
                    {"asset_id", "ast_" + sample.asset},
                    {"url", fmt::format("/api/v1/assets/ast_{}/file", sample.asset)}});
  return HttpResponse::json({{"items", list}, {"next", nullptr}, {"total", list.size()}});
}

HttpResponse checkpoint_file(const ServerRequest& request, TrainingRuns& runs) {
  const Run run = run_of(request, runs);
  const StoredCheckpoint checkpoint = runs.checkpoint_at(run, step_of(request));
  HttpResponse response;
  response.file = runs.folder_of(run) / checkpoint.path;
  response.content_type = "application/octet-stream";
  response.etag = '"' + checkpoint.sha256 + '"';
  response.headers.push_back({"content-disposition", "attachment"});
  return response;
}

HttpResponse stop_run(const ServerRequest& request, ApiContext& api, TrainingRuns& runs) {
  const Json body = request.body.empty() ? Json::object() : json_body(request, api.app);
  for (const auto& [key, value] : body.items())
    if (key != "save" || !value.is_boolean())
      throw HttpError(400, "invalid_request", "the body must be {\"save\": true} or {\"save\": false}", "save");
  return HttpResponse::json(run_to_json(runs.stop(run_of(request, runs).id, body.value("save", true))), 202);
}

HttpResponse change_run(const ServerRequest& request, ApiContext& api, TrainingRuns& runs) {
  const Json body = json_body(request, api.app);
  if (body.size() != 1 || !body.contains("options") || !body["options"].is_object())
    throw HttpError(400, "invalid_request", "only options can be changed; it must be an object", "options");
  return HttpResponse::json(run_to_json(runs.change(run_of(request, runs).id, body["options"])));
}

constexpr const char* kStartBody =
    R"({"type":"object","required":["name","dataset"],"additionalProperties":false,"properties":{)"
    R"("name":{"type":"string","description":"of the run and of its files"},"project_id":{"type":"null"},)"
    R"("preset":{"type":["string","null"],"enum":["character","style","edit","concept",null]},)"
    R"("model":{"type":["string","null"],"description":"name or key of a registered model"},)"
    R"("dataset":{"type":"object","description":"config, path or assets","properties":{"config":{"type":"object"},)"
    R"("path":{"type":"string"},"assets":{"type":"array","items":{"type":"object"}},"general":{"type":"object"}}},)"
    R"("options":{"type":["object","null"],"description":"training options by name"},)"
    R"("dry":{"type":"boolean","description":"only forecast what it needs"}}})";

}  // namespace

void add_training_routes(Router& router, ApiContext& api, TrainingRuns& runs) {
  struct More {
    std::vector<std::string> arguments = {};
    std::string body = {};
  };
  const auto add = [&](const char* method, const char* pattern, Scope scope, const char* summary,
                       std::function<HttpResponse(const ServerRequest&)> answer, More more = {}) {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering(std::move(answer)),
                .scope = scope,
                .summary = summary,
                .arguments = std::move(more.arguments),
                .body = std::move(more.body)});
  };
  add("POST", "/api/v1/training", Scope::Manage, "start a training run; with dry, only forecast what it needs",
      [&](const ServerRequest& r) { return start_run(r, api, runs); }, {.body = kStartBody});
  add("GET", "/api/v1/training", Scope::Generate, "list training runs, newest first",
      [&](const ServerRequest& r) { return list_runs(r, runs); }, {.arguments = {"limit", "cursor"}});
  add("GET", "/api/v1/training/{id}", Scope::Generate, "one training run",
      [&](const ServerRequest& r) { return HttpResponse::json(run_to_json(run_of(r, runs))); });
  add("PATCH", "/api/v1/training/{id}", Scope::Manage, "change options that do not change what is learnt",
      [&](const ServerRequest& r) { return change_run(r, api, runs); },
      {.body = R"({"type":"object","required":["options"],"properties":{"options":{"type":"object"}}})"});
  add("GET", "/api/v1/training/{id}/metrics", Scope::Generate, "losses and learning rates, in at most max buckets",
      [&](const ServerRequest& r) { return metrics_of(r, runs); }, {.arguments = {"from", "to", "max", "keys"}});
  add("GET", "/api/v1/training/{id}/samples", Scope::Generate, "the sample images",
      [&](const ServerRequest& r) { return samples_of(r, runs); });
  add("GET", "/api/v1/training/{id}/checkpoints", Scope::Generate, "the saved adapters", [&](const ServerRequest& r) {
    const Json list = runs.checkpoints(run_of(r, runs));
    return HttpResponse::json({{"items", list}, {"next", nullptr}, {"total", list.size()}});
  });
  add("GET", "/api/v1/training/{id}/checkpoints/{step}/file", Scope::Generate, "download a saved adapter",
      [&](const ServerRequest& r) { return checkpoint_file(r, runs); });
  add("POST", "/api/v1/training/{id}/checkpoints/{step}/try", Scope::Generate, "make a checkpoint usable in loras",
      [&](const ServerRequest& r) {
        return HttpResponse::json({{"adapter", runs.try_checkpoint(run_of(r, runs), step_of(r))}});
      });
  add("POST", "/api/v1/training/{id}/checkpoints/{step}/keep", Scope::Manage,
      "keep a checkpoint even if the options would delete it", [&](const ServerRequest& r) {
        const StoredCheckpoint kept = runs.keep_checkpoint(run_of(r, runs), step_of(r));
        return HttpResponse::json({{"step", kept.step}, {"path", kept.path}, {"kept", kept.kept}});
      });
  add("DELETE", "/api/v1/training/{id}/checkpoints/{step}", Scope::Manage, "delete a checkpoint", [&](const ServerRequest& r) {
    runs.remove_checkpoint(run_of(r, runs), step_of(r));
    return HttpResponse::empty();
  });
  add("POST", "/api/v1/training/{id}/pause", Scope::Manage, "save the state and free the device",
      [&](const ServerRequest& r) { return HttpResponse::json(run_to_json(runs.pause(run_of(r, runs).id)), 202); });
  add("POST", "/api/v1/training/{id}/resume", Scope::Manage, "continue from the last state",
      [&](const ServerRequest& r) { return HttpResponse::json(run_to_json(runs.resume(run_of(r, runs).id)), 202); });
  add("POST", "/api/v1/training/{id}/stop", Scope::Manage, "end a run; {\"save\": false} writes nothing more",
      [&](const ServerRequest& r) { return stop_run(r, api, runs); },
      {.body = R"({"type":"object","properties":{"save":{"type":"boolean"}},"additionalProperties":false})"});
}

}  // namespace flux2
