#include "server/api/health.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "record/generation_record.h"

namespace flux2 {

namespace {

HttpResponse health(ApiContext& api, const HealthSources& sources) {
  const bool stopping = sources.stopping();
  const auto counts = api.queue.store().counts("gpu");
  const std::string model = api.loaded_model();
  return HttpResponse::json({{"status", stopping ? "stopping" : "ok"},
                             {"model", model.empty() ? Json(nullptr) : Json(model)},
                             {"loading", api.is_loading()},
                             {"queue", counts.queued + counts.running},
                             {"version", program_version()}},
                            stopping ? 503 : 200);
}

class MetricsText {
 public:
  void add(const char* name, const char* type, const char* help, double value, const std::string& labels = {}) {
    if (name != last_) text_ += fmt::format("# HELP flux2_{} {}\n# TYPE flux2_{} {}\n", name, help, name, type);
    last_ = name;
    text_ += fmt::format("flux2_{}{} {}\n", name, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_, last_;
};

// Prometheus quotes these three characters.
std::string label_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\\' || c == '"') quoted += '\\';
    if (c == '\n') quoted += "\\n";
    else quoted += c;
  }
  return quoted;
}

// A model may be in memory more than once, with different settings. Prometheus wants one line for each name.
std::vector<ModelInMemory> by_name(const std::vector<ModelInMemory>& all) {
  std::vector<ModelInMemory> models;
  for (const ModelInMemory& model : all) {
    const auto same = std::find_if(models.begin(), models.end(), [&](const ModelInMemory& other) {
      return other.name == model.name && other.device == model.device;
    });
    if (same == models.end()) {
      models.push_back(model);
      continue;
    }
    same->bytes += model.bytes;
    for (size_t i = 0; i < model.caches.size(); ++i) {
      same->caches[i].bytes += model.caches[i].bytes;
      same->caches[i].limit += model.caches[i].limit;
      same->caches[i].hits += model.caches[i].hits;
      same->caches[i].misses += model.caches[i].misses;
    }
  }
  return models;
}

double resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

std::string metrics_text(ApiContext& api, const HealthSources& sources) {
  MetricsText text;
  const auto counts = api.queue.store().counts("gpu");
  text.add("jobs_queued", "gauge", "Jobs that wait.", static_cast<double>(counts.queued));
  text.add("jobs_running", "gauge", "Jobs that run.", static_cast<double>(counts.running));
  const auto connections = sources.connections();
  text.add("connections", "gauge", "Open connections.", static_cast<double>(connections.connections));
  text.add("event_streams", "gauge", "Open event streams.", static_cast<double>(connections.streams));
  text.add("requests_total", "counter", "HTTP requests.", static_cast<double>(connections.requests));
  const LimitCounts& refused = api.queue.refused();
  const auto limited = [&](int64_t n, const char* limit) {
    text.add("requests_limited_total", "counter", "Requests refused by a limit of their key.", static_cast<double>(n),
             fmt::format("{{limit=\"{}\"}}", limit));
  };
  limited(sources.refused_by_rate(), "rate");
  limited(refused.queue, "queue");
  limited(refused.work, "work");
  text.add("memory_peak_bytes", "gauge", "Peak resident memory of the process.", resident_bytes());
  if (!sources.worker) return text.take();
  const WorkerTotals totals = sources.worker->totals();
  const auto whole = [](int64_t n) { return static_cast<double>(n); };
  text.add("jobs_total", "counter", "Jobs that ended, by state.", whole(totals.completed), "{state=\"completed\"}");
  text.add("jobs_total", "counter", "", whole(totals.failed), "{state=\"failed\"}");
  text.add("jobs_total", "counter", "", whole(totals.cancelled), "{state=\"cancelled\"}");
  text.add("jobs_merged_total", "counter", "Jobs that shared a batch with others.", whole(totals.merged));
  text.add("images_total", "counter", "Images generated.", whole(totals.images));
  text.add("steps_total", "counter", "Denoising steps.", whole(totals.steps));
  text.add("worker_busy_seconds_total", "counter", "Time that jobs ran.", totals.busy);
  const char* help = "Time by phase of a job.";
  text.add("phase_seconds_total", "counter", help, totals.seconds.load, "{phase=\"load\"}");
  text.add("phase_seconds_total", "counter", help, totals.seconds.text, "{phase=\"text\"}");
  text.add("phase_seconds_total", "counter", help, totals.seconds.references, "{phase=\"encode_references\"}");
  text.add("phase_seconds_total", "counter", help, totals.seconds.denoise, "{phase=\"denoise\"}");
  text.add("phase_seconds_total", "counter", help, totals.seconds.decode, "{phase=\"decode\"}");
  const WorkerState state = sources.worker->state();
  text.add("models_loaded", "gauge", "Models in memory.", static_cast<double>(state.models.size()));
  text.add("models_evicted_total", "counter", "Models that made room for others.", whole(state.evicted));
  const std::vector<ModelInMemory> models = by_name(state.models);
  const auto labels = [](const ModelInMemory& model, const char* cache = nullptr) {
    return fmt::format("{{model=\"{}\",device=\"{}\"{}}}", label_text(model.name), label_text(model.device),
                       cache ? fmt::format(",cache=\"{}\"", cache) : "");
  };
  for (const ModelInMemory& model : models)
    text.add("model_bytes", "gauge", "Memory that a model keeps: of its GPU, or on a CPU the size of its weights.",
             whole(model.bytes), labels(model));
  text.add("device_memory_bytes", "gauge", "Memory of the GPU in use.", whole(state.device_memory.total));
  text.add("device_memory_free_bytes", "gauge", "Free memory of the device.", whole(state.device_memory.available));
  struct CacheFigure {
    const char *name, *type, *help;
    int64_t PictureMaker::Cache::*value;
  };
  for (const CacheFigure& figure :
       {CacheFigure{"cache_bytes", "gauge", "Size of a cache.", &PictureMaker::Cache::bytes},
        CacheFigure{"cache_limit_bytes", "gauge", "Largest size of a cache.", &PictureMaker::Cache::limit},
        CacheFigure{"cache_hits_total", "counter", "Requests that found what they need.", &PictureMaker::Cache::hits},
        CacheFigure{"cache_misses_total", "counter", "Requests that did not.", &PictureMaker::Cache::misses}})
    for (const ModelInMemory& model : models)
      for (const PictureMaker::Cache& cache : model.caches)
        text.add(figure.name, figure.type, figure.help, whole(cache.*figure.value), labels(model, cache.name));
  return text.take();
}

void add_health_routes(Router& router, ApiContext& api, const HealthSources& sources) {
  const auto add = [&](const char* pattern, Scope scope, const char* summary,
                       std::function<HttpResponse(const ServerRequest&)> answer) {
    router.add(
        {.method = "GET", .pattern = pattern, .handler = answering(std::move(answer)), .scope = scope, .summary = summary});
  };
  add("/health", Scope::None, "status, loaded model and length of the queue",
      [&api, sources](const ServerRequest&) { return health(api, sources); });
  // Says only that the process answers: it does not touch the database.
  add("/healthz", Scope::None, "200 while the process answers", [](const ServerRequest&) {
    return HttpResponse::json({{"status", "ok"}});
  });
  add("/readyz", Scope::None, "200 when requests are accepted", [&api, sources](const ServerRequest&) {
    const char* status = sources.stopping() ? "stopping" : !api.queue.store().is_available() ? "database unavailable" : "ready";
    return HttpResponse::json({{"status", status}}, std::string_view(status) == "ready" ? 200 : 503);
  });
  add("/metrics", Scope::Generate, "figures for Prometheus", [&api, sources](const ServerRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics_text(api, sources);
    return response;
  });
}

}  // namespace flux2
