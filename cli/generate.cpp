#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "app/adapters.h"
#include "app/background_writer.h"
#include "app/picture_maker.h"
#include "app/presets.h"
#include "app/safety.h"
#include "cli/command.h"
#include "cli/plan.h"
#include "cli/prepare.h"
#include "cli/progress_display.h"
#include "cli/show.h"
#include "cli/user_input.h"

namespace flux2 {

namespace {

int64_t milliseconds(double seconds) { return static_cast<int64_t>(seconds * 1000 + 0.5); }

int list_styles(Invocation& run) {
  for (const auto& [name, text] : all_styles(run)) run.console.result(fmt::format("{:<12} {}", name, text));
  return 0;
}

// What the run has to say at its end.
struct Outcome {
  Json images = Json::array();
  double save = 0;  // seconds in which nothing else could be done
  int status = 0;
  std::unique_ptr<Error> failure;

  void failed(const Error& error, int code) {
    if (status != 0) return;
    status = code;
    failure = std::make_unique<Error>(error);
  }
};

// Standard output carries an image, the paths of images, or JSON.
PictureWriter::ToStandardOutput to_standard_output(Invocation& run, const std::vector<ResolvedRequest>& requests) {
  if (std::none_of(requests.begin(), requests.end(), [](const ResolvedRequest& r) { return r.output() == "-"; })) return {};
  check(!run.console.json(), "-o - and --json both want standard output");
  check(::isatty(STDOUT_FILENO) == 0, "-o - would write an image to the terminal; send it to a file or a program");
  return [&run](std::span<const std::byte> bytes) { run.console.result_bytes(bytes); };
}

class Generation {
 public:
  Generation(Invocation& run, ModelFiles model, std::vector<ResolvedRequest> requests)
      : run_(run),
        spec_(run.spec()),
        requests_(std::move(requests)),
        display_(run.console),
        steps_(run),
        writer_(spec_, to_standard_output(run, requests_)),
        saver_(writer_, {.written = [this](const Picture& picture, const WrittenPicture& written) { saved(picture, written); },
                         .failed = [this](const Error& e) { request_failed(e); }}),
        maker_(run, std::move(model), spec_) {
    for (const ResolvedRequest& resolved : requests_) writer_.expect(resolved.output(), resolved.request.batch);
    writer_.check_targets(run.log);
    check_show_options(run.settings);
    if (spec_.trace) check(requests_.size() == 1, "--trace records one request, but there are {}", requests_.size());
  }

  int run() {
    try {
      check_safety();
      if (requests_.empty()) return report();
      maker_.load(requests_, display_.progress());
      if (maker_.engine().device().is_host()) saver_.set_threads(0);
      if (spec_.strict.value_or(false)) refuse_long_prompts(maker_.session().models, requests_, run_.log_prompts);
      for (const ResolvedRequest& resolved : requests_) make(resolved);
      save_the_rest();
    } catch (const Error& e) {
      run_failed(e);
    } catch (const std::bad_alloc&) {
      const Error e(ErrorCode::OutOfMemory, "not enough memory", "a smaller --size or --batch needs less");
      run_failed(e);
    }
    try {
      save_the_rest();  // images that were finished before a failure
    } catch (const Error& e) {
      run_failed(e);
    }
    return report();
  }

 private:
  void make(const ResolvedRequest& resolved) {
    Trace trace;
    if (spec_.trace) maker_.record_into(&trace);
    display_.begin();
    Progress progress = display_.progress(resolved.spec.deadline);
    progress.report = [this, show = progress.report](Phase phase, int step, int steps) {
      show(phase, step, steps);
      saver_.write_ready();
    };
    try {
      maker_.make(
          resolved, [&](const Picture& picture, GenerationRecord record) { deliver(picture, std::move(record), resolved); },
          progress, steps_.on_preview());
    } catch (const Error& e) {
      request_failed(e);
    }
    if (spec_.trace) trace.save(*spec_.trace);
  }

  // Requests that are refused are left out before a model is loaded.
  void check_safety() {
    if (!run_.safety) return;
    std::vector<ResolvedRequest> allowed;
    const auto cancelled = [] { return interrupt_signal() != 0; };
    for (ResolvedRequest& resolved : requests_) {
      try {
        run_.safety->check_request(resolved, maker_.files(), cancelled);
        allowed.push_back(std::move(resolved));
      } catch (const Error& e) {
        if (e.code() != ErrorCode::Refused) throw;
        run_failed(e);
      }
    }
    run_.safety->release();  // the image model needs the memory
    requests_ = std::move(allowed);
  }

  void run_failed(const Error& e) {
    outcome_.failed(e,
                    e.code() == ErrorCode::Cancelled && interrupt_signal() != 0 ? 128 + interrupt_signal() : exit_code(e.code()));
    run_.console.error(e);
  }

  // One request that cannot be done does not stop the others; no more memory or an interruption does.
  void request_failed(const Error& e) {
    const bool others_may_work =
        e.code() == ErrorCode::InvalidArgument || e.code() == ErrorCode::CannotWrite || e.code() == ErrorCode::Refused;
    if (!others_may_work || requests_.size() == 1) throw e;
    run_failed(e);
  }

  void deliver(const Picture& picture, GenerationRecord record, const ResolvedRequest& resolved) {
    const double before = display_.seconds();
    saver_.add(picture, std::move(record), resolved.output(), resolved.finish);
    outcome_.save += display_.seconds() - before;
  }

  void save_the_rest() {
    const double before = display_.seconds();
    saver_.flush();
    outcome_.save += display_.seconds() - before;
  }

  void saved(const Picture& picture, const WrittenPicture& written) {
    if (!written.warning.empty()) run_.log.warn("{}", written.warning);
    const int index = static_cast<int>(outcome_.images.size());
    const bool latents_alone = written.image.pixels.empty();
    const int width = latents_alone ? static_cast<int>(picture.columns) * 16 : written.image.width;
    const int height = latents_alone ? static_cast<int>(picture.rows) * 16 : written.image.height;
    outcome_.images.push_back(
        {{"path", written.path.string()}, {"seed", picture.seed}, {"width", width}, {"height", height}, {"index", index}});
    const StepCacheUse& cache = picture.cache;
    if (cache.steps > 0)
      outcome_.images.back()["step_cache"] = {{"steps", cache.steps}, {"computed", cache.computed}, {"error", cache.error}};
    if (!written.latents.empty()) outcome_.images.back()["latents"] = written.latents.string();
    Console& console = run_.console;
    if (console.progress() == ProgressMode::Json)
      console.event({{"event", "image"}, {"path", written.path.string()}, {"seed", picture.seed}});
    if (!console.json() && written.path != "-") console.result_path(written.path.string());
    if (!latents_alone) show_picture(written.image, run_);
    const double now = display_.seconds();
    // Where both streams end in one terminal, the path stands there already.
    const bool repeats = ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
    summary_.push_back(fmt::format("{}  {}x{}  seed {}  {:.2f} s  peak {:.2f} GiB", repeats ? "" : written.path.string(), width,
                                   height, picture.seed, now - finished_, static_cast<double>(maker_.peak_bytes()) / (1 << 30)));
    if (cache.steps > 0)
      summary_.back() +=
          fmt::format("  {} of {} steps computed, estimated error {:.1f} %", cache.computed, cache.steps, 100 * cache.error);
    finished_ = now;
  }

  int report() {
    display_.finish();
    for (const std::string& line : summary_) run_.console.note(line);
    const MemoryUse memory = maker_.memory_use();
    const PhaseTimes& times = maker_.times();
    const double total = display_.seconds();
    if (run_.console.progress() == ProgressMode::Json && outcome_.status == 0)
      run_.console.event({{"event", "done"}, {"ms", milliseconds(total)}});
    if (!run_.console.json()) return outcome_.status;
    Json result = {{"images", outcome_.images},
                   {"model", maker_.files().id},
                   {"timings",
                    {{"load", milliseconds(times.load)},
                     {"text", milliseconds(times.text)},
                     {"encode", milliseconds(times.references)},
                     {"denoise", milliseconds(times.denoise)},
                     {"decode", milliseconds(times.decode)},
                     {"save", milliseconds(outcome_.save)},
                     {"total", milliseconds(total)}}},
                   {"memory", {{"peak_resident", memory.peak_resident}, {"peak_device", memory.peak_device}}},
                   {"warnings", run_.console.warnings()}};
    if (outcome_.failure)
      result["error"] = {{"code", name_of(outcome_.failure->code())},
                         {"message", outcome_.failure->what()},
                         {"hint", command_line_words(outcome_.failure->hint())}};
    run_.console.result(result.dump(-1, ' ', false, Json::error_handler_t::replace));
    return outcome_.status;
  }

  Invocation& run_;
  RequestSpec spec_;
  std::vector<ResolvedRequest> requests_;
  ProgressDisplay display_;
  StepDisplay steps_;
  PictureWriter writer_;
  BackgroundWriter saver_;
  PictureMaker maker_;
  std::vector<std::string> summary_;  // a line for each picture, shown when the progress is gone
  double finished_ = 0;               // when the last picture was, in seconds
  Outcome outcome_;
};

}  // namespace

int run_prepared(Invocation& run, PreparedRun prepared) {
  if (run.settings.flag("dry-run")) return print_plan(run, prepared);
  rewrite_requests(run, prepared.model, prepared.requests);
  if (const std::string out = run.settings.text("save-merged"); !out.empty())
    save_merged_model(out, prepared.model, common_adapters(prepared), run.log);
  return Generation(run, std::move(prepared.model), std::move(prepared.requests)).run();
}

namespace {

// Merges adapters into a model's file and makes no image.
int run_merge_only(Invocation& run) {
  const RequestSpec spec = run.spec();
  const std::string out = run.settings.text("save-merged-model");
  const ModelFiles model = choose_model(spec, run);
  const std::vector<AdapterChoice> adapters = adapter_choices(spec, run);
  if (run.settings.flag("dry-run") && !adapters.empty()) {  // merging nothing is refused below
    Json list = Json::array();
    for (const AdapterChoice& a : adapters) list.push_back({{"path", a.path.string()}, {"strength", a.strength}});
    run.console.result(pretty({{"path", out}, {"transformer", model.transformer.string()}, {"adapters", list}}));
    return 0;
  }
  save_merged_model(out, model, adapters, run.log);
  if (run.console.json()) run.console.result(pretty({{"path", out}}));
  else run.console.result_path(out);
  return 0;
}

int run_task(Invocation& run, Task task) {
  if (run.settings.has("save-merged-model")) return run_merge_only(run);
  run.standard_input = [bytes = run.limits.image.file_bytes] { return read_standard_input(bytes); };
  return run_prepared(run, prepare_run(run, task));
}

}  // namespace

int run_generate(Invocation& run) {
  if (run.settings.text("style") == "list") return list_styles(run);
  return run_task(run, Task::Generate);
}

int run_edit(Invocation& run) { return run_task(run, Task::Edit); }

int run_inpaint(Invocation& run) { return run_task(run, Task::Inpaint); }

}  // namespace flux2
