#include "server/api/dj.h"

#include <fmt/format.h>

#include "app/upscalers.h"
#include "base/text.h"
#include "image/metadata.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/api/dj_request.h"
#include "server/api/enlarging.h"
#include "server/api/waiting_client.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/request_images.h"

namespace flux2 {

namespace {

constexpr uint64_t kDjImageBody = uint64_t{64} << 20;
constexpr int64_t kMostDjQueued = 50;
constexpr int kMostDjListed = 100;

// This family knows images alone. Training, downloads and conversions belong to managers, and texts have no result here.
bool makes_images(const Job& job) { return job.lane == "gpu" && job.kind != "train" && !is_text_kind(job.kind); }

Job job_of_token(ApiContext& api, const std::string& token) {
  const auto id = job_of_dj_token(token);
  auto job = id ? api.queue.store().get(*id) : std::nullopt;
  if (!job || !makes_images(*job)) throw HttpError(404, "not_found", "Job not found");
  return *job;
}

Json status_now(ApiContext& api, const Job& job) { return dj_status(job, api.queue.store().queue_position(job)); }

HttpResponse generate_dj(ApiContext& api, const ServerRequest& http) {
  DjRequest request = parse_dj_request(object_in_body(http, api.app));
  if (api.queue.store().counts("gpu").queued >= kMostDjQueued)
    throw HttpError(429, "queue_full", fmt::format("{} jobs are already waiting. Try again later.", kMostDjQueued));
  if (request.upscale_network && (!api.upscales || registered_upscalers(api.app).empty()))
    throw HttpError(400, "unsupported_value",
                    "No upscaler is installed. Install one with `flux2 models install realesrgan-x4plus`, or use lanczos.",
                    "upscale_method");
  std::string model = api.default_model;
  if (!request.model.empty()) request.native["model"] = model = api.models.name_of(request.model);
  apply_dj_model_rules(request, api.models.find(model));
  for (const std::string& image : request.images)
    request.native["references"].push_back(stored_image(image, "reference", api.queue.assets(), api.app, "input_image_base64"));
  const Job job = submit_translated(api, {.members = request.native,
                                          .kind = request.images.empty() ? "generate" : "edit",
                                          .client_ref = dj_client_ref(request),
                                          .caller = http.caller});
  return HttpResponse::json({{"token", dj_token(job.id)}}, 201);
}

HttpResponse enlarged_result(HttpResponse response, const std::string& stored, int factor, const std::filesystem::path& upscaler,
                             const EnlargeImage& enlarge) {
  const auto view = std::as_bytes(std::span(stored));
  const Image image = read_image(view);
  const Image large = enlarge ? enlarge(upscaler, image) : image;
  const auto bytes = encode_png(resize(large, image.width * factor, image.height * factor), read_metadata(view));
  response.content_type = "image/png";
  response.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return response;
}

void answer_result_dj(ApiContext& api, const Exchange& exchange) {
  const std::string token = exchange.request().parameter("token");
  const Job job = job_of_token(api, token);
  if (HttpError refused = error_of_job(job); job.state == "failed" && refused.code == "content_policy_violation")
    throw HttpError(refused.status, refused.code, refused.code + ": " + refused.what());
  if (job.state != "completed" || job.images.empty())
    throw HttpError(409, "not_finished", fmt::format("The job is {}.", job.state));
  const auto asset = api.queue.assets().get(job.images.front().asset);
  if (!asset || asset->missing) throw HttpError(404, "not_found", "The image was deleted.");
  HttpResponse response;
  response.content_type = asset->mime;
  response.headers = {{"content-disposition", fmt::format("inline; filename={}.png", token)}};
  const int factor = dj_upscale_of(job);
  if (factor == 1) {
    response.file = api.queue.assets().path_of(*asset);
    return exchange.respond(response);
  }
  const std::string bytes = bytes_of_asset(api.queue.assets(), asset->id);
  if (!dj_upscales_by_network(job)) return exchange.respond(enlarged_result(response, bytes, factor, {}, {}));
  answer_when_enlarged(api, exchange, Family::Dj,
                       [response, bytes, factor, upscaler = find_upscaler({}, factor, api.app)](const EnlargeImage& enlarge) {
                         return enlarged_result(response, bytes, factor, upscaler, enlarge);
                       });
}

HttpResponse queue_dj(ApiContext& api) {
  Json list = Json::array();
  JobFilter filter;
  filter.limit = kMostDjListed;
  for (;;) {
    const std::vector<Job> jobs = api.queue.store().list(filter);
    for (const Job& job : jobs) {
      if (list.size() == static_cast<size_t>(kMostDjListed)) return HttpResponse::json(list);
      if (makes_images(job)) list.push_back(status_now(api, job));
    }
    if (jobs.size() < static_cast<size_t>(filter.limit)) return HttpResponse::json(list);
    filter.before = jobs.back().id;
  }
}

HttpResponse cancel_dj(ApiContext& api, const std::string& token) {
  const Job job = job_of_token(api, token);
  if (job.is_final()) throw HttpError(409, "already_final", fmt::format("The job is already {}.", job.state));
  api.queue.cancel(job.id);
  return HttpResponse::json({{"success", true}, {"message", "Cancelled"}});
}

HttpResponse models_dj(ApiContext& api) {
  Json supported = Json::array();
  for (const InstalledModel& model : api.models.main_models()) supported.push_back(model.name);
  const std::string loaded = api.loaded_model();
  Json memory = nullptr;
  if (api.device_memory) {
    const MemorySize size = api.device_memory();
    memory =
        byte_text(static_cast<uint64_t>(size.total - size.available)) + " of " + byte_text(static_cast<uint64_t>(size.total));
  }
  return HttpResponse::json(
      {{"supported", supported}, {"loaded", loaded.empty() ? Json() : Json(loaded)}, {"vram_usage", memory}});
}

// Sends the status of one job to one WebSocket.
class DjFollower : public std::enable_shared_from_this<DjFollower> {
 public:
  DjFollower(ApiContext& api, std::string job, std::shared_ptr<EventStream::Channel> channel)
      : api_(api), job_(std::move(job)), channel_(std::move(channel)) {}

  void start() {
    {
      const std::lock_guard lock(mutex_);
      listener_ = api_.queue.events().listen([self = shared_from_this()](const Event& event) {
        if (event.job == self->job_ && event.name != "preview") self->send();
      });
    }
    channel_->on_closed([self = shared_from_this()] { self->leave(); });
    api_.queue.when_finished(job_, [self = shared_from_this()](const Job&) {
      self->send();
      self->leave();
      self->channel_->close();
    });
    send();
  }

 private:
  void send() {
    const auto job = api_.queue.store().get(job_);
    if (!job) return;
    std::string text = status_now(api_, *job).dump();
    const std::lock_guard lock(mutex_);
    if (text == last_) return;
    last_ = text;
    channel_->send(std::move(text), EventStream::Keep::Always);
  }

  void leave() {
    int64_t listener = 0;
    {
      const std::lock_guard lock(mutex_);
      std::swap(listener, listener_);
    }
    if (listener != 0) api_.queue.events().leave(listener);
  }

  ApiContext& api_;
  const std::string job_;
  std::shared_ptr<EventStream::Channel> channel_;
  std::mutex mutex_;
  int64_t listener_ = 0;
  std::string last_;
};

}  // namespace

void follow_dj_job(ApiContext& api, const ServerRequest& head, const std::shared_ptr<EventStream::Channel>& channel) {
  const Job job = job_of_token(api, head.parameter("token"));
  std::make_shared<DjFollower>(api, job.id, channel)->start();
}

void add_dj_routes(Router& router, ApiContext& api) {
  using Answer = std::function<HttpResponse(const ServerRequest&)>;
  const auto add = [&](const char* method, const char* pattern, const char* summary, Answer answer, uint64_t body = 1 << 20) {
    router.add(
        {.method = method, .pattern = pattern, .handler = answering(std::move(answer)), .body_limit = body, .summary = summary});
  };
  add(
      "POST", "/generate", "Submit an image", [&api](const ServerRequest& request) { return generate_dj(api, request); },
      kDjImageBody);
  add("GET", "/status/{token}", "What a job does", [&api](const ServerRequest& request) {
    return HttpResponse::json(status_now(api, job_of_token(api, request.parameter("token"))));
  });
  router.add({.method = "GET",
              .pattern = "/result/{token}",
              .handler = [&api](const Exchange& exchange) { answer_result_dj(api, exchange); },
              .body_limit = 1 << 20,
              .summary = "The image of a job"});
  add("GET", "/queue", "The newest jobs", [&api](const ServerRequest&) { return queue_dj(api); });
  add("POST", "/cancel/{token}", "Cancel a job",
      [&api](const ServerRequest& request) { return cancel_dj(api, request.parameter("token")); });
  add("GET", "/models", "The installed models", [&api](const ServerRequest&) { return models_dj(api); });
  // The listener answers a WebSocket handshake itself; this is for clients that send none.
  add("GET", "/ws/{token}", "The status of a job whenever it changes, as a WebSocket",
      [](const ServerRequest&) -> HttpResponse { throw HttpError(426, "upgrade_required", "This address is a WebSocket."); });
}

}  // namespace flux2
