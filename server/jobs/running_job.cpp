#include "server/jobs/running_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "image/write_image.h"
#include "pipeline/regions.h"
#include "server/jobs/job_error.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/patiently.h"
#include "server/jobs/preview_steps.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr auto kProgressEvery = std::chrono::milliseconds(100);  // except at the end of a step
constexpr auto kStoreEvery = std::chrono::milliseconds(500);     // progress in the store, for other processes
constexpr int kPreviewQuality = 80;

int64_t to_ms(double seconds) { return std::llround(seconds * 1000); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// How far a request is after `step` of `steps` of a phase, from 0 to 1. Denoising takes nearly all of the time.
double share_done(Phase phase, int step, int steps) {
  const double within = steps > 0 ? static_cast<double>(step) / steps : 0;
  switch (phase) {
    case Phase::Load: return 0;
    case Phase::Text: return 0.02 * within;
    case Phase::EncodeReferences:
    case Phase::EncodeImages: return 0.02 + 0.03 * within;
    case Phase::Denoise: return 0.05 + 0.87 * within;
    case Phase::Decode: return 0.92 + 0.07 * within;
    case Phase::Save: return 0.99;
  }
  return 0;
}

// The request with all defaults filled in.
Json resolved_json(const PreparedRun& run) {
  Json json = to_json(run.requests.front().record);
  for (const char* key : {"device", "time_ms", "index"}) json.erase(key);
  int images = 0;
  for (const ResolvedRequest& resolved : run.requests) images += resolved.request.batch;
  json["count"] = images;
  return json;
}

// Requests for fewer images, one after the other, whose seeds count on: the same images.
PreparedRun in_rounds(PreparedRun run, int rounds) {
  if (rounds <= 1) return run;
  std::vector<ResolvedRequest> split;
  for (const ResolvedRequest& whole : run.requests) {
    int done = 0;
    for (int round = 0; round < rounds; ++round) {
      const int end = whole.request.batch * (round + 1) / rounds;
      if (end == done) continue;
      ResolvedRequest part = whole;
      part.request.seed += static_cast<uint64_t>(done);
      part.request.batch = end - done;
      split.push_back(std::move(part));
      done = end;
    }
  }
  run.requests = std::move(split);
  return run;
}

}  // namespace

RunningJob::RunningJob(JobQueue& queue, Job job, const AppContext& context)
    : queue_(queue), job_(std::move(job)), context_(context) {
  if (job_.result.is_object()) warnings_ = job_.result.value("warnings", Json::array());
  context_.log = Log([this, outer = context.log](LogLevel level, const std::string& text) {
    if (level >= LogLevel::Warning) warnings_.push_back(text);
    else if (level == LogLevel::Debug) outer.debug("{}", text);
    else outer.info("{}", text);
  });
}

void RunningJob::set_prepared(PreparedRun prepared) {
  prepared_ = in_rounds(std::move(prepared), job_.request.value("rounds", 1));
  const Json attempt = job_.resolved.is_object() ? job_.resolved.value("attempt", Json(nullptr)) : Json(nullptr);
  job_.resolved = resolved_json(prepared_);
  if (!attempt.is_null()) job_.resolved["attempt"] = attempt;
  job_.steps = prepared_.requests.front().request.steps;
  if (const auto& rewritten = prepared_.requests.front().record.request.rewritten_prompt) made_["rewritten_prompt"] = *rewritten;
  check_lease(queue_.store().set_progress(job_));
}

// Another process may have taken the job after this one was stopped for longer than its lease.
void RunningJob::check_lease(bool held) {
  if (held) return;
  over_ = true;
  flux2::fail(ErrorCode::Cancelled, "another worker has taken over this job");
}

void RunningJob::tell(size_t request, Phase phase, int step, int steps) {
  if (over_) return;
  const auto total = static_cast<double>(std::max<size_t>(prepared_.requests.size(), 1));
  const bool ends_step = phase == Phase::Denoise && step > 0;
  job_.phase = name_of(phase);
  job_.progress = (static_cast<double>(request) + share_done(phase, step, steps)) / total;
  if (phase == Phase::Denoise) job_.step = step, job_.steps = steps;
  job_.message = phase == Phase::Denoise ? fmt::format("denoise {}/{}", step, steps) : job_.phase;
  const auto now = Clock::now();
  if (!ends_step && now - told_ < kProgressEvery && phase == last_phase_) return;
  last_phase_ = phase;
  publish_progress(now);
}

void RunningJob::tell_text(std::string_view text, int64_t tokens, int64_t most) {
  const auto now = Clock::now();
  if (over_ || now - told_ < kProgressEvery) return;
  job_.phase = "write";
  job_.message = fmt::format("{} tokens", tokens);
  if (is_text_kind(job_.kind)) job_.progress = std::min(1.0, static_cast<double>(tokens) / static_cast<double>(most));
  Json data = {{"job_id", "job_" + job_.id},
               {"task_id", job_.client_ref.empty() ? Json(nullptr) : Json(job_.client_ref)},
               {"tokens", tokens},
               {"max_tokens", most}};
  if (!text.empty()) data["text"] = text;
  queue_.events().publish_progress("text.progress", data, job_.id);
  publish_progress(now);
}

void RunningJob::publish_progress(Clock::time_point now) {
  told_ = now;
  Json eta = nullptr;
  if (job_.progress > 0.05) eta = seconds_since(started_) * (1 - job_.progress) / job_.progress;
  queue_.events().publish_progress("progress",
                                   {{"job_id", "job_" + job_.id},
                                    {"phase", job_.phase},
                                    {"step", job_.step},
                                    {"steps", job_.steps},
                                    {"progress", job_.progress},
                                    {"eta_s", eta},
                                    {"message", job_.message}},
                                   job_.id);
  if (now - stored_ < kStoreEvery) return;
  stored_ = now;
  if (!queue_.store().is_available()) return;  // the job goes on while the database is away
  try {
    check_lease(queue_.store().set_progress(job_));
  } catch (const DatabaseAway&) {}
}

bool RunningJob::wants_preview(const StepDone& step) const { return flux2::wants_preview(job_.request, step.step, step.steps); }

void RunningJob::preview(const SmallPreview& preview, int index, int step, int steps) {
  if (over_) return;
  const Image image = preview.fitted();
  const auto bytes = encode_jpeg(image, {}, kPreviewQuality);
  queue_.set_preview(job_.id, {.bytes = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                               .mime = "image/jpeg",
                               .step = step,
                               .index = index,
                               .width = image.width,
                               .height = image.height});
  queue_.events().publish_progress("preview",
                                   {{"job_id", "job_" + job_.id},
                                    {"index", index},
                                    {"step", step},
                                    {"steps", steps},
                                    {"url", fmt::format("/api/v1/jobs/job_{}/preview", job_.id)},
                                    {"width", image.width},
                                    {"height", image.height}},
                                   job_.id);
}

UnsavedImage RunningJob::take(const ResolvedRequest& resolved, const Picture& picture, GenerationRecord record) {
  record.seconds = {};  // the job has the times: equal requests give equal bytes
  set_seed(record, picture);
  record.index = picture.index;
  PictureWriter writer(resolved.spec);
  Image image = writer.image_of(picture);
  return {.writer = std::move(writer),
          .image = std::move(image),
          .finish = resolved.finish,
          .record = std::move(record),
          .index = index_++};
}

EncodedImage UnsavedImage::encode() const {
  if (!finish) return {writer.encode(image, record, "-"), {}};
  const Image finished = finish(image);
  return {writer.encode(finished, record, "-"), problem_of_finished(finished, record)};
}

void RunningJob::save(const UnsavedImage& unsaved, std::shared_future<EncodedImage> encoded) {
  if (over_) return;
  if (queue_.cancel_noted(job_.id)) flux2::fail(ErrorCode::Cancelled, "stopped");
  const auto began = Clock::now();
  Asset fields;
  fields.kind = job_.request.value("save", true) ? "image" : "temporary";
  fields.job = job_.id;
  const EncodedImage& file = encoded.get();
  if (!file.warning.empty()) image_warnings_.push_back(file.warning);
  const Asset asset = patiently([&] { return queue_.assets().put(file.bytes, fields); });
  const JobImage image{
      .index = unsaved.index, .asset = asset.id, .seed = unsaved.seed(), .width = asset.width, .height = asset.height};
  check_lease(patiently([&] { return queue_.store().add_image(job_.id, job_.worker, image); }));
  saved_.push_back(image);
  save_seconds_ += seconds_since(began);
  const std::string url = fmt::format("/api/v1/jobs/job_{}/images/{}", job_.id, image.index);
  queue_.events().publish("image",
                          {{"job_id", "job_" + job_.id},
                           {"index", image.index},
                           {"seed", image.seed},
                           {"asset_id", "ast_" + asset.id},
                           {"url", url},
                           {"thumb_url", url + "?thumb=1"}},
                          job_.id);
}

void RunningJob::count_usage(const Models& models) {
  int64_t text = 0, references = 0, image = 0;
  for (const ResolvedRequest& resolved : prepared_.requests) {
    if (models.tokenizer)
      for (const std::string& prompt : prompts_of(resolved.request))
        text += static_cast<int64_t>(models.tokenizer->encode(prompt).size());
    references += resolved.request.reference_tokens();
    image += resolved.request.tokens() * resolved.request.batch;
  }
  usage_ = {{"text_tokens", text}, {"reference_tokens", references}, {"image_tokens", image}};
}

bool RunningJob::cancel_requested() {
  if (!cancel_) cancel_ = queue_.cancel_noted(job_.id);
  if (cancel_ || Clock::now() - asked_ < queue_.cancel_poll()) return cancel_;
  asked_ = Clock::now();
  if (!queue_.store().is_available()) return false;
  try {
    cancel_ = queue_.store().cancel_requested(job_.id);
  } catch (const DatabaseAway&) {}
  return cancel_;
}

void RunningJob::complete(const PhaseTimes& times, int64_t peak_bytes) {
  if (over_) return;
  times_ = times;
  peak_ = peak_bytes;
  job_.state = "completed";
  job_.progress = 1;
  finish();
}

void RunningJob::fail(const std::exception_ptr& thrown, bool deadline_passed) {
  JobError error = job_error_of(thrown);
  if (error.cancelled && deadline_passed) error.code = "deadline", error.cancelled = false;
  const bool asked = error.cancelled && patiently([&] { return queue_.store().cancel_requested(job_.id); });
  job_.state = asked ? "cancelled" : "failed";
  if (!asked) job_.error = {{"code", error.code}, {"message", error.message}, {"hint", error.hint}};
  finish();
}

void RunningJob::finish() {
  if (over_) return;
  over_ = true;
  job_.images.insert(job_.images.end(), saved_.begin(), saved_.end());
  for (const std::string& warning : image_warnings_) warnings_.push_back(warning);
  job_.finished = now_ms();
  job_.result = {{"warnings", warnings_},
                 {"timings_ms",
                  {{"load", to_ms(times_.load)},
                   {"text", to_ms(times_.text)},
                   {"encode", to_ms(times_.references)},
                   {"denoise", to_ms(times_.denoise)},
                   {"decode", to_ms(times_.decode)},
                   {"save", to_ms(save_seconds_)},
                   {"total", to_ms(seconds_since(started_))}}},
                 {"peak_vram", peak_},
                 {"usage", usage_}};
  job_.result.update(made_);
  // A worker that lost its lease must not report: another one has the job.
  if (patiently([&] { return queue_.store().finish(job_); })) queue_.finished(job_);
}

void RunningJob::give_back() {
  if (over_) return;
  over_ = true;
  queue_.give_back(job_.id, job_.worker);
}

}  // namespace flux2
