#include <fmt/format.h>

#include <algorithm>

#include "server/jobs/job_kinds.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/studio_request.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// A member of the job's result, or `otherwise`.
Json from_result(const Job& job, const char* key, Json otherwise) {
  if (!job.result.is_object()) return otherwise;
  const auto found = job.result.find(key);
  return found == job.result.end() || found->is_null() ? otherwise : *found;
}

// The time that is left, if the rest goes on as the part that is done.
Json eta_of(const Job& job) {
  if (job.state != "running" || job.started == 0 || job.progress < 0.02) return nullptr;
  const double elapsed = static_cast<double>(std::max<int64_t>(now_ms() - job.started, 0)) / 1000;
  return elapsed * (1 - job.progress) / job.progress;
}

// Why a job waits, if that is not plain from its place.
std::string waiting_message(const Job& job, JobStore& store) {
  if (job.state != "queued" || job.lane != "gpu" || job.kind == "train") return job.message;
  const auto training = store.list({.state = "running", .kind = "train", .project = {}, .before = {}, .limit = 1});
  if (training.empty()) return job.message;
  const std::string name = training[0].request.value("name", std::string());
  if (job.request.value("preempt", false)) return fmt::format("waits until the training run {} pauses", name);
  return fmt::format("waits for the training run {}; a job with \"preempt\": true need not wait", name);
}

}  // namespace

std::string job_image_url(const std::string& id, int index) { return fmt::format("/api/v1/jobs/job_{}/images/{}", id, index); }

std::string job_thumbnail_url(const std::string& id, int index) { return job_image_url(id, index) + "?thumb=1"; }

Json job_to_json(const Job& job, JobStore& store, bool with_request) {
  Json images = Json::array();
  for (const JobImage& image : job.images)
    images.push_back({{"index", image.index},
                      {"seed", image.seed},
                      {"width", image.width},
                      {"height", image.height},
                      {"asset_id", "ast_" + image.asset},
                      {"url", job_image_url(job.id, image.index)},
                      {"thumb_url", job_thumbnail_url(job.id, image.index)}});
  const int64_t position = job.state == "queued" ? store.queue_position(job) : 0;
  Json json = {{"id", "job_" + job.id},
               {"kind", job.kind},
               {"state", job.state},
               {"phase", or_null(job.phase)},
               {"progress", job.progress},
               {"step", job.step},
               {"steps", job.steps},
               {"queue_position", position > 0 ? Json(position) : Json(nullptr)},
               {"eta_s", eta_of(job)},
               {"message", waiting_message(job, store)},
               {"project_id", job.project.empty() ? Json(nullptr) : Json("prj_" + job.project)},
               {"client_ref", or_null(job.client_ref)},
               {"priority", job.priority},
               {"created_at", or_null(rfc3339(job.created))},
               {"started_at", or_null(rfc3339(job.started))},
               {"finished_at", or_null(rfc3339(job.finished))}};
  if (with_request) json["request"] = request_as_sent(job.request);
  if (job.request.is_object() && job.request.contains(kResolution)) json["resolution"] = resolution_report(job.request);
  json["resolved"] = job.resolved;
  json["images"] = std::move(images);
  json["rewritten_prompt"] = from_result(job, "rewritten_prompt", nullptr);
  json["warnings"] = from_result(job, "warnings", Json::array());
  json["timings_ms"] = from_result(job, "timings_ms", Json::object());
  json["peak_vram"] = from_result(job, "peak_vram", 0);
  if (job.lane != "gpu" || is_text_kind(job.kind)) json["result"] = job.result;
  json["error"] = job.error;
  return json;
}

}  // namespace flux2
