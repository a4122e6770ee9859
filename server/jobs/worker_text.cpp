#include "app/picture_maker.h"
#include "app/prompt_rewriting.h"
#include "app/safety.h"
#include "engine/language.h"
#include "server/jobs/text_request.h"
#include "server/jobs/worker.h"

namespace flux2 {

namespace {

constexpr int64_t kUsualTokens = 512;

// Text that the safety check has not seen is shown to nobody.
bool is_shown(const AppContext& context) {
  const auto& safety = context.safety;
  return !safety || safety->settings().text == SafetySettings::Text::Off || !safety->settings().check.rewritten;
}

OnText told_to(RunningJob& job, const RequestSpec& spec) {
  const int64_t most = spec.upsample_max_tokens.value_or(kUsualTokens);
  return [&job, most, shown = is_shown(job.context())](std::string_view text, int64_t tokens) {
    job.tell_text(shown ? text : std::string_view(), tokens, most);
  };
}

}  // namespace

// It outlives the job, so its messages go to the server's log.
Rewriter& Worker::rewriter_for(const RequestSpec& spec, const ModelFiles& model, bool offline) {
  std::string key = rewriter_key(spec, model);
  if (rewriter_ && rewriter_key_ == key) return *rewriter_;
  rewriter_.reset();
  rewriter_ = open_rewriter(spec, context_, offline, model, {}, [this, spec](int64_t bytes) {
    const bool freed = keeper_.make_room(spec, bytes);
    if (freed) note_models();
    return freed;
  });
  rewriter_key_ = std::move(key);
  return *rewriter_;
}

void Worker::rewrite(RunningJob& job, PreparedRun& prepared) {
  RequestSpec spec = prepared.requests.front().spec;
  if (spec.upsample == "local") spec.upsample_model.reset();  // in the server's settings it names the model of a service
  Rewriter* rewriter = nullptr;
  try {
    rewriter = &rewriter_for(spec, prepared.model, prepared.offline);
  } catch (const Error& e) {
    return keep_prompts(prepared.requests, e, job.context());
  }
  rewrite_prompts(
      prepared.requests, *rewriter, job.context(), [&] { return stopping_ || job.cancel_requested(); }, told_to(job, spec));
  if (context_.safety) rewriter->release();  // its language model needs the memory now
}

void Worker::run_text(RunningJob& job) {
  {
    const std::lock_guard lock(mutex_);
    state_.jobs.push_back(job.job().id);
  }
  queue_.started(job.job());
  const auto began = std::chrono::steady_clock::now();
  try {
    const Json& request = job.job().request;
    const TextRequest text = text_request(request, defaults_, queue_.assets(), job.context(), &found_);
    TextTask task = text_task_of(request, queue_.assets(), job.context());
    task.on_text = told_to(job, text.spec);
    Rewriter& rewriter = rewriter_for(text.spec, text.model, text.offline);
    const RewrittenPrompt made =
        run_text_task(rewriter, task, text.spec, text.model, job.context(), [&] { return stopping_ || job.cancel_requested(); });
    job.set_text(text_result(request, made, rewriter));
    job.complete({}, 0);
  } catch (...) {
    end_badly(job, std::current_exception());
  }
  note_end(job);
  const std::lock_guard lock(mutex_);
  totals_.busy += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

bool Worker::text_fits_beside_training(const Job& job) {
  AppContext quiet = context_;
  quiet.log = {};
  try {
    const TextRequest text = text_request(job.request, defaults_, queue_.assets(), quiet, &found_);
    if (!text.is_local()) return true;
    const EngineOptions options = engine_options(text.spec, quiet);
    if (options.memory_limit != 0) return false;  // it is one of everything together, and training was planned with all of it
    const Engine engine(options);
    return engine.device().is_host() || language_bytes(engine, text.model, text.sees) <= engine.device().memory().available;
  } catch (const Error&) {
    return true;  // the job fails when it runs, and says why
  }
}

}  // namespace flux2
