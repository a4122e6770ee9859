#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/engine_settings.h"
#include "cli/folders.h"
#include "cli/interrupt.h"
#include "cli/picture_writer.h"
#include "cli/plan.h"
#include "cli/progress_display.h"
#include "cli/prepare.h"
#include "cli/show.h"
#include "cli/styles.h"
#include "engine/engine.h"
#include "engine/file_hash.h"
#include "engine/forecast.h"
#include "hub/recognise.h"
#include "pipeline/tiles.h"
#include "text/prompt.h"

namespace flux2 {

namespace {

int64_t milliseconds(double seconds) { return static_cast<int64_t>(seconds * 1000 + 0.5); }

int list_styles(Invocation& run) {
  for (const auto& [name, text] : all_styles(run.project, run.user))
    run.console.result(fmt::format("{:<12} {}", name, text));
  return 0;
}

void refuse_long_prompts(const Models& models, const std::vector<ResolvedRequest>& requests) {
  if (!models.tokenizer) return;
  for (const ResolvedRequest& resolved : requests)
    for (const std::string* text : {&resolved.request.prompt, &resolved.request.negative}) {
      const PromptTokens tokens = tokenize_prompt(*models.tokenizer, *text, models.text_length);
      if (!tokens.dropped.empty())
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("a prompt has more than {} tokens; this part finds no room: \"{}\"", models.text_length,
                                tokens.dropped),
                    "shorten it, or leave --strict out to have it cut");
    }
}

// What the run has to say at its end.
struct Outcome {
  Json images = Json::array();
  double load = 0, save = 0;
  PhaseTimes times;
  MemoryUse memory;
  int status = 0;
  std::unique_ptr<Error> failure;

  void failed(const Error& error, int code) {
    if (status != 0) return;
    status = code;
    failure = std::make_unique<Error>(error);
  }
};

class Generation {
 public:
  Generation(Invocation& run, ModelFiles model, std::vector<ResolvedRequest> requests)
      : run_(run), files_(std::move(model)), requests_(std::move(requests)), display_(run.console), writer_(run) {
    for (const ResolvedRequest& resolved : requests_) writer_.expect(resolved.output, resolved.request.batch);
    writer_.check_targets();
    if (run.settings.has("trace"))
      check(requests_.size() == 1, "--trace records one request, but there are {}", requests_.size());
  }

  int run() {
    try {
      load(engine_options(run_));
      if (run_.settings.flag("strict")) refuse_long_prompts(loaded_->models, requests_);
      for (const ResolvedRequest& resolved : requests_) make(resolved);
    } catch (const Error& e) {
      outcome_.failed(e, e.code() == ErrorCode::Cancelled ? 128 + interrupt_signal() : exit_code(e.code()));
      run_.console.error(e);
    } catch (const std::bad_alloc&) {
      const Error e(ErrorCode::OutOfMemory, "not enough memory", "a smaller --size or --batch needs less");
      outcome_.failed(e, exit_code(e.code()));
      run_.console.error(e);
    }
    return report();
  }

 private:
  void load(const EngineOptions& options) {
    loaded_.reset();  // before the engine, and before another one takes memory
    engine_ = std::make_unique<Engine>(options);
    const bool text = !run_.settings.has("embeddings");
    const double before = display_.seconds();
    LoadParts parts{.text_encoder = text};
    // Where room is short it matters how much the largest request needs.
    if (!engine_->device().is_host() || engine_->options().memory_limit > 0) parts.working_bytes = largest_working_bytes();
    loaded_ = engine_->load(files_, display_.progress(), parts);
    outcome_.load += display_.seconds() - before;
    const Recognition recognition = recognise(files_.transformer);
    const Component& transformer = require(recognition, ComponentKind::Transformer);
    const auto data = data_folder(run_.environment);
    for (ResolvedRequest& resolved : requests_) {
      resolved.record.quant = engine_->quant() == Quant::None ? transformer.storage : std::string(name_of(engine_->quant()));
      resolved.record.noise = resolved.request.noise.on(engine_->device()).name();
      resolved.record.device = engine_->device().name() + ": " + engine_->device().description();
      resolved.record.model_sha256 =
          remembered_hash(files_.transformer, data.empty() ? data : data / "cache/hashes.json");
    }
  }

  int64_t largest_working_bytes() const {
    int64_t largest = 0;
    for (const ResolvedRequest& resolved : requests_)
      largest = std::max(largest, working_bytes(*engine_, files_, resolved.request));
    return largest;
  }

  // Once, when memory ran out: pictures one at a time, and on a GPU weights that take turns. False when that was done before.
  bool step_down(const Error& error) {
    if (stepped_down_) return false;
    stepped_down_ = true;
    EngineOptions options = engine_->options();
    const bool host = engine_->device().is_host();
    run_.console.warn(fmt::format("{}; trying once more {}", error.what(),
                                  host ? "with one picture at a time" : "with one picture at a time and streamed weights"));
    if (!host) {
      options.offload = Offload::Stream;
      load(options);
    }
    loaded_->session.tokens_at_once = 0;
    if (loaded_->session.decode_tile == 0) loaded_->session.decode_tile = kDecodeTile;
    return true;
  }

  void make(const ResolvedRequest& resolved) {
    Trace trace;
    const std::string trace_path = run_.settings.text("trace");
    int delivered = 0;
    const auto attempt = [&] {
      Request rest = resolved.request;  // what an attempt before this one did not finish
      rest.seed += static_cast<uint64_t>(delivered);
      rest.batch -= delivered;
      const int first = delivered;
      if (!trace_path.empty()) loaded_->session.trace = &trace;
      const PhaseTimes times =
          text_to_image(loaded_->models, loaded_->session, rest, display_.progress(), [&](Picture picture) {
            picture.index += first;
            deliver(resolved, picture);
            ++delivered;
          });
      outcome_.load += times.load;
      outcome_.times.text += times.text;
      outcome_.times.references += times.references;
      outcome_.times.denoise += times.denoise;
      outcome_.times.decode += times.decode;
    };
    try {
      try {
        attempt();
      } catch (const Error& e) {
        if (e.code() != ErrorCode::OutOfMemory || !step_down(e)) throw;
        attempt();
      }
    } catch (const Error& e) {
      // One request that cannot be done does not stop the others; no more memory or an interruption does.
      const bool others_may_work = e.code() == ErrorCode::InvalidArgument || e.code() == ErrorCode::CannotWrite;
      if (!others_may_work || requests_.size() == 1) throw;
      outcome_.failed(e, exit_code(e.code()));
      run_.console.error(e);
    }
    if (!trace_path.empty()) trace.save(trace_path);
  }

  void deliver(const ResolvedRequest& resolved, const Picture& picture) {
    GenerationRecord record = resolved.record;
    record.seconds.text = display_.seconds_in(Phase::Text);
    record.seconds.vae_encode = display_.seconds_in(Phase::EncodeReferences);
    record.seconds.denoise = display_.seconds_in(Phase::Denoise);
    record.seconds.decode = display_.seconds_since_report();  // which was the beginning of this picture's decoding
    const double before = display_.seconds();
    const WrittenPicture written = writer_.write(picture, std::move(record), resolved.output);
    outcome_.save += display_.seconds() - before;
    const int index = static_cast<int>(outcome_.images.size());
    outcome_.images.push_back({{"path", written.path.string()},
                               {"seed", picture.seed},
                               {"width", written.image.width},
                               {"height", written.image.height},
                               {"index", index}});
    Console& console = run_.console;
    if (console.progress() == ProgressMode::Json)
      console.event({{"event", "image"}, {"path", written.path.string()}, {"seed", picture.seed}});
    if (!console.json() && written.path != "-") console.result(written.path.string());
    show_picture(written.image, run_);
    const MemoryUse memory = engine_->memory_use(*loaded_);
    const int64_t peak = engine_->device().is_host() ? memory.peak_resident : memory.peak_device;
    summary_.push_back(fmt::format("{}  {}x{}  seed {}  {:.2f} s  peak {:.2f} GiB", written.path.string(),
                                   written.image.width, written.image.height, picture.seed, display_.seconds(),
                                   static_cast<double>(peak) / (1 << 30)));
  }

  int report() {
    display_.finish();
    for (const std::string& line : summary_) run_.console.note(line);
    if (loaded_) outcome_.memory = engine_->memory_use(*loaded_);
    const double total = display_.seconds();
    if (run_.console.progress() == ProgressMode::Json && outcome_.status == 0)
      run_.console.event({{"event", "done"}, {"ms", milliseconds(total)}});
    if (!run_.console.json()) return outcome_.status;
    Json result = {
        {"images", outcome_.images},
        {"model", files_.id},
        {"timings",
         {{"load", milliseconds(outcome_.load)},
          {"text", milliseconds(outcome_.times.text)},
          {"encode", milliseconds(outcome_.times.references)},
          {"denoise", milliseconds(outcome_.times.denoise)},
          {"decode", milliseconds(outcome_.times.decode)},
          {"save", milliseconds(outcome_.save)},
          {"total", milliseconds(total)}}},
        {"memory", {{"peak_resident", outcome_.memory.peak_resident}, {"peak_device", outcome_.memory.peak_device}}},
        {"warnings", run_.console.warnings()}};
    if (outcome_.failure)
      result["error"] = {{"code", name_of(outcome_.failure->code())},
                         {"message", outcome_.failure->what()},
                         {"hint", outcome_.failure->hint()}};
    run_.console.result(result.dump(-1, ' ', false, Json::error_handler_t::replace));
    return outcome_.status;
  }

  Invocation& run_;
  ModelFiles files_;
  std::vector<ResolvedRequest> requests_;
  ProgressDisplay display_;
  PictureWriter writer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LoadedModel> loaded_;
  std::vector<std::string> summary_;  // a line for each picture, shown when the progress is gone
  Outcome outcome_;
  bool stepped_down_ = false;
};

int run_prepared(Invocation& run, PreparedRun prepared) {
  if (run.settings.flag("dry-run")) return print_plan(run, prepared);
  return Generation(run, std::move(prepared.model), std::move(prepared.requests)).run();
}

}  // namespace

int run_generate(Invocation& run) {
  if (run.settings.text("style") == "list") return list_styles(run);
  return run_prepared(run, prepare_run(run));
}

int run_edit(Invocation& run) {
  PreparedRun prepared = prepare_run(run);
  for (const ResolvedRequest& resolved : prepared.requests)
    if (resolved.request.references.empty())
      throw Error(ErrorCode::InvalidArgument, "edit needs a picture to begin with", "flux2 edit -i photo.png \"make it winter\"");
  return run_prepared(run, std::move(prepared));
}

}  // namespace flux2
