// POST /api/v1/prompt/rewrite and /describe: a language model rewrites a prompt or describes an image. A service is asked at
// once; the model's own text encoder needs the device, so that is a job in the queue.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>

#include "app/prompt_rewriting.h"
#include "base/foreign_text.h"
#include "base/text.h"
#include "server/api/body_members.h"
#include "server/api/native.h"
#include "server/api/waiting_client.h"
#include "server/http/errors.h"
#include "server/jobs/request_images.h"
#include "server/jobs/text_request.h"

namespace flux2 {

namespace {

constexpr int kAtATime = 4;  // each holds a thread that answers requests
constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();
constexpr int kTextPriority = 1;  // a text takes seconds, and somebody waits for it before an image can be ordered

constexpr const char* kBodySchema = R"({"type":"object","required":["prompt"],"additionalProperties":false,"properties":{
  "prompt":{"type":"string","pattern":"[^ \\t\\r\\n]"},
  "references":{"type":["array","null"],"items":{"type":"string"},"description":"images that the prompt is about: asset:ID, data URL or base64"},
  "kind":{"type":["string","null"],"enum":["t2i","edit",null],"description":"default: edit if there are references"},
  "provider":{"type":["string","null"],"description":"local, http, openrouter or ollama; default: what the server is configured for"},
  "model":{"type":["string","null"],"description":"local: the model whose text encoder writes; default: the server's default model"},
  "seed":{"type":["integer","null"],"minimum":0},
  "max_tokens":{"type":["integer","null"],"minimum":1,"maximum":4096},
  "task_id":{"type":["string","null"],"maxLength":200,"description":"comes back with the events text.progress"},
  "preempt":{"type":["boolean","null"],"description":"local: pause a training run that holds the device"},
  "wait":{"type":["boolean","null"],"description":"local: false answers at once with the job"}}})";

constexpr const char* kDescribeSchema = R"({"type":"object","required":["image"],"additionalProperties":false,"properties":{
  "image":{"type":"string","description":"asset:ID, data URL or base64"},
  "about":{"type":["string","null"],"description":"what the model should know about the image"},
  "provider":{"type":["string","null"],"description":"local, http, openrouter or ollama; default: what the server is configured for"},
  "model":{"type":["string","null"],"description":"local: the model whose text encoder looks; default: the server's default model"},
  "seed":{"type":["integer","null"],"minimum":0},
  "max_tokens":{"type":["integer","null"],"minimum":1,"maximum":4096},
  "task_id":{"type":["string","null"],"maxLength":200,"description":"comes back with the events text.progress"},
  "preempt":{"type":["boolean","null"],"description":"local: pause a training run that holds the device"},
  "wait":{"type":["boolean","null"],"description":"local: false answers at once with the job"}}})";

// A checked body.
struct Asked {
  Json request;                                // as text_request.h has it; images are not stored yet
  std::vector<std::string> images;             // as they were sent
  std::optional<std::string> provider, model;  // that were named
  std::string task;
  bool describes = false, waits = true;
  std::vector<std::string> warnings = {};

  const char* failure() const { return describes ? "the image was not described" : "the prompt was not rewritten"; }
};

// Members that both calls have.
void read_common(BodyMembers& members, Asked& asked) {
  asked.provider = members.text("provider", 100);
  asked.model = members.text("model", 200);
  if (asked.model && !is_plain_name(*asked.model)) members.wrong("model", "is not the name of a model");
  if (const auto seed = members.integer("seed", 0, kMaxSeed)) asked.request["seed"] = *seed;
  if (const auto most = members.integer("max_tokens", 1, 4096)) asked.request["max_tokens"] = *most;
  if (members.flag("preempt").value_or(false)) asked.request["preempt"] = true;
  asked.task = members.text("task_id", 200).value_or("");
  asked.waits = members.flag("wait").value_or(true);
}

Asked rewrite_request(const Json& body, const ApiContext& api) {
  BodyMembers members(body,
                      {"prompt", "references", "kind", "provider", "model", "seed", "max_tokens", "task_id", "preempt", "wait"});
  Asked asked{.request = {{"kind", "rewrite"}}, .images = {}, .provider = {}, .model = {}, .task = {}};
  const auto prompt = members.text("prompt", static_cast<size_t>(api.app.limits.request.prompt_bytes));
  const auto references = members.texts("references", 1000, kImageBody);
  const auto kind = members.text("kind", 100);
  read_common(members, asked);
  if (!prompt || trimmed(*prompt).empty()) members.wrong("prompt", "is missing");
  if (kind && *kind != "t2i" && *kind != "edit") members.wrong("kind", "must be t2i or edit");
  members.check_all();
  const size_t most = static_cast<size_t>(api.app.limits.request.references);
  if (references && references->size() > most)
    throw HttpError(400, "invalid_request", fmt::format("references: at most {} images are accepted", most), "references");
  asked.request["prompt"] = *prompt;
  if (references) asked.images = *references;
  asked.request["edit"] = kind ? *kind == "edit" : !asked.images.empty();
  return asked;
}

Asked describe_request(const Json& body, const ApiContext& api) {
  BodyMembers members(body, {"image", "about", "provider", "model", "seed", "max_tokens", "task_id", "preempt", "wait"});
  Asked asked{.request = {{"kind", "describe"}}, .images = {}, .provider = {}, .model = {}, .task = {}, .describes = true};
  const auto image = members.text("image", kImageBody);
  const auto about = members.text("about", static_cast<size_t>(api.app.limits.request.prompt_bytes));
  read_common(members, asked);
  if (!image || image->empty()) members.wrong("image", "is missing");
  members.check_all();
  asked.images = {*image};
  if (about) asked.request["prompt"] = *about;
  return asked;
}

HttpError unavailable(const std::string& message, const std::string& hint = {}) {
  HttpError error(424, "upsampler_unavailable", message);
  error.hint = hint;
  return error;
}

// Whether the text encoder of that model can do it; says why not.
std::optional<HttpError> local_problem(const Asked& asked, const ModelFiles& files, const ApiContext& api) {
  const LanguageAbilities can = api.models.abilities(files);
  if (!can.writes) return unavailable(can.problem, can.hint);
  if (asked.describes && !can.sees)
    return unavailable(fmt::format("the text encoder of {} cannot look at images", files.id),
                       "use FLUX.2-dev with the vision part of its text encoder, or a chat server with a model that sees");
  return std::nullopt;
}

// The one that is asked for, else the configured one, else the first that works. Services come before the model's own text
// encoder.
std::string chosen_provider(const Asked& asked, const RequestSpec& spec, bool offline, const ApiContext& api) {
  const auto& given = asked.provider;
  const std::vector<std::string> works = available_rewriters(spec, api.app, offline);
  std::string wanted = given.value_or(asked.model ? "local" : spec.upsample.value_or("none"));
  if (wanted == "local") {
    if (auto problem = local_problem(asked, api.models.find(asked.model.value_or("")), api)) throw *problem;
    return wanted;
  }
  if (asked.model) throw HttpError(400, "invalid_request", "model: belongs to the provider local", "model");
  if (std::find(works.begin(), works.end(), wanted) != works.end()) return wanted;
  if (!given && wanted == "none") {
    if (!works.empty()) return works.front();
    // The bundled model can write, but it knows about 300 words: it is used if somebody asks for it.
    try {
      const ModelFiles files = api.models.find("");
      if (!files.bundled && !local_problem(asked, files, api)) return "local";
    } catch (const HttpError&) {
      // No model is installed. The error below says what is missing.
    }
  }
  const char* what = asked.describes ? "describe images" : "rewrite prompts";
  throw unavailable(given ? fmt::format("this server is not configured to {} with \"{}\"", what, printable(wanted))
                          : fmt::format("this server is not configured to {}", what));
}

// Images become assets, once nothing else is wrong.
void store_images(Asked& asked, ApiContext& api) {
  for (size_t i = 0; i < asked.images.size(); ++i) {
    const std::string param = asked.describes ? "image" : fmt::format("references[{}]", i);
    asked.request["references"].push_back(stored_image(asked.images[i], "reference", api.queue.assets(), api.app, param));
  }
}

// Asks a service, and answers with what came of it.
HttpResponse answer_of_service(const Asked& asked, ApiContext& api, const Settings& defaults) {
  Json warnings = Json::array();
  AppContext context = api.app;
  context.log = Log([&](LogLevel level, const std::string& text) {
    if (level >= LogLevel::Warning) warnings.push_back(text);
  });
  const TextRequest text = text_request(asked.request, defaults, api.queue.assets(), context);
  const TextTask task = text_task_of(asked.request, api.queue.assets(), context);
  const auto rewriter = open_rewriter(text.spec, context, text.offline, text.model);
  try {
    Json json = text_result(asked.request, run_text_task(*rewriter, task, text.spec, text.model, context, {}), *rewriter);
    json["warnings"] = warnings;
    return HttpResponse::json(json);
  } catch (const Error& e) {
    throw HttpError(502, "upsampler_failed", fmt::format("{}: {}", asked.failure(), e.what()));
  }
}

// The answer to a client that has waited for the job.
HttpResponse answer_of_job(const Job& job, const std::string& failure) {
  if (job.state == "completed") {
    Json json = Json::object();
    for (const char* member : {"prompt", "description", "provider", "model", "seed", "tokens", "warnings"})
      if (job.result.contains(member)) json[member] = job.result[member];
    return HttpResponse::json(json);
  }
  HttpError error = error_of_job(job);
  const std::string code = job.error.is_object() ? job.error.value("code", std::string()) : std::string();
  const bool is_answer = code == "incompatible" || code == "invalid_request" || code == "network" || code == "damaged_file";
  HttpError told(is_answer ? 502 : error.status, is_answer ? "upsampler_failed" : error.code,
                 fmt::format("{}: {}", failure, error.what()));
  told.hint = error.hint;
  throw told;
}

void answer_with_job(const Exchange& exchange, const Asked& asked, ApiContext& api) {
  JobQueue::Submission submission;
  submission.kind = asked.request["kind"].get<std::string>();
  submission.request = asked.request;
  submission.client_ref = asked.task;
  submission.priority = kTextPriority;
  submission.caller = exchange.request().caller;
  if (asked.request["provider"] == "local") submission.model_key = api.models.find(asked.model.value_or("")).id;
  const Job job = api.queue.submit(submission).job;
  if (!asked.waits) {
    HttpResponse response = HttpResponse::json(job_to_json(job, api.queue.store()), 202);
    response.headers.push_back({"location", "/api/v1/jobs/job_" + job.id});
    return exchange.respond(std::move(response));
  }
  answer_when_finished(api, exchange, Family::Native, job,
                       [failure = std::string(asked.failure())](const Job& final) { return answer_of_job(final, failure); });
}

// Where safety checks are on, everything is a job: they need the device too.
void answer(const Exchange& exchange, Asked asked, ApiContext& api, const Settings& defaults, std::atomic<int>& running) {
  asked.request["provider"] = chosen_provider(asked, spec_of(defaults), defaults.flag("offline"), api);
  if (asked.model) asked.request["model"] = api.models.name_of(*asked.model);
  if (asked.request["provider"] == "local" || api.app.safety) {
    store_images(asked, api);
    return answer_with_job(exchange, asked, api);
  }
  const std::shared_ptr<void> leave(nullptr, [&](void*) { --running; });
  if (++running > kAtATime)
    throw HttpError(429, "too_many_requests", "the language model is being asked too often; try again in a moment");
  store_images(asked, api);
  exchange.respond(answer_of_service(asked, api, defaults));
}

}  // namespace

void add_prompt_routes(Router& router, ApiContext& api, const Settings& defaults) {
  const auto running = std::make_shared<std::atomic<int>>(0);
  const auto asking = [&api, &defaults, running](Asked (*read)(const Json&, const ApiContext&)) {
    return [&api, &defaults, running, read](const Exchange& exchange) {
      answer(exchange, read(json_body(exchange.request(), api.app), api), api, defaults, *running);
    };
  };
  router.add({.method = "POST",
              .pattern = "/api/v1/prompt/describe",
              .handler = asking(describe_request),
              .scope = Scope::Generate,
              .body_limit = kImageBody,
              .summary = "let a language model describe an image; 424 if none can",
              .body = kDescribeSchema});
  router.add({.method = "POST",
              .pattern = "/api/v1/prompt/rewrite",
              .handler = asking(rewrite_request),
              .scope = Scope::Generate,
              .body_limit = kImageBody,
              .summary = "let a language model rewrite a prompt; 424 if none can",
              .body = kBodySchema});
}

}  // namespace flux2
