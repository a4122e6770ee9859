#include "cli/picture_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/adapter_choice.h"
#include "cli/engine_settings.h"
#include "cli/folders.h"
#include "cli/step_preview.h"
#include "base/file_hash.h"
#include "engine/forecast.h"
#include "hub/recognise.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

constexpr uint64_t kLargestAdapter = uint64_t{1} << 30;  // bytes; larger ones are not read for their hash

}  // namespace

PictureMaker::PictureMaker(Invocation& run, ModelFiles files, ProgressDisplay& display)
    : run_(run), files_(std::move(files)), display_(display) {}

void PictureMaker::load(std::span<const ResolvedRequest> requests) {
  EngineOptions options = engine_options(run_);
  options.adapters = adapters_of(requests);
  const auto differs = [&](const ResolvedRequest& r) { return r.adapters != requests[0].adapters; };
  if (options.adapter_mode == AdapterMode::Merge && std::any_of(requests.begin(), requests.end(), differs))
    run_.console.warn("merged adapters that change between pictures load the transformer again; --lora-mode runtime does not");
  open(options);
  if (!engine_->device().is_host() || engine_->options().memory_limit > 0) {
    working_ = {};
    for (const ResolvedRequest& resolved : requests)
      working_ = WorkingBytes::largest(working_, working_bytes(*engine_, files_, resolved.request));
  }
  // Where bringing the encoder back means copying or rounding its weights again.
  prompts_.clear();
  if (!engine_->device().is_host() || engine_->quant() != Quant::None)
    for (const ResolvedRequest& resolved : requests) {
      prompts_.push_back(resolved.request.prompt);
      if (resolved.request.cfg) prompts_.push_back(resolved.request.negative);
    }
  load_model();
  const Recognition recognition = recognise(files_.transformer);
  storage_ = engine_->quant() == Quant::None ? require(recognition, ComponentKind::Transformer).storage
                                             : std::string(name_of(engine_->quant()));
  const auto data = data_folder(run_.environment);
  hashes_ = data.empty() ? data : data / "cache/hashes.json";
  model_sha256_ = remembered_hash(files_.transformer, hashes_);
}

void PictureMaker::open(const EngineOptions& options) {
  session_.reset();  // before the engine, and before another one takes memory
  engine_ = std::make_unique<Engine>(options);
}

void PictureMaker::load_model() {
  const double before = display_.seconds();
  const bool text = !run_.settings.has("embeddings");
  session_ = engine_->open(files_, display_.progress(), {.text_encoder = text, .working = working_});
  session_->prompts_ahead = prompts_;
  times_.load += display_.seconds() - before;
}

// Once, when memory ran out: pictures one at a time, and on a GPU weights that take turns. False when that was done before.
bool PictureMaker::step_down(const Error& error) {
  if (stepped_down_) return false;
  stepped_down_ = true;
  EngineOptions options = engine_->options();
  const bool host = engine_->device().is_host();
  run_.console.warn(fmt::format("{}; trying once more {}", error.what(),
                                host ? "with one picture at a time" : "with one picture at a time and streamed weights"));
  if (!host) {
    options.offload = Offload::Stream;
    open(options);
    load_model();
  }
  session_->tokens_at_once = 0;
  if (session_->decode_tile == 0) session_->decode_tile = kDecodeTile;
  return true;
}

GenerationRecord PictureMaker::completed(const ResolvedRequest& resolved) {
  GenerationRecord record = resolved.record;
  record.quant = storage_;
  record.noise = resolved.request.noise.on(engine_->device()).name();
  record.device = engine_->device().name() + ": " + engine_->device().description();
  record.model_sha256 = model_sha256_;
  for (const AdapterChoice& adapter : resolved.adapters) {
    const auto [known, is_new] = adapter_hashes_.try_emplace(adapter.path);
    if (is_new) known->second = remembered_hash(adapter.path, hashes_, kLargestAdapter);
    record.adapters.push_back({adapter.path.stem().string(), known->second, adapter.strength, adapter.layers});
  }
  record.seconds.text = display_.seconds_in(Phase::Text);
  record.seconds.vae_encode = display_.seconds_in(Phase::EncodeReferences);
  record.seconds.denoise = display_.seconds_in(Phase::Denoise);
  record.seconds.decode = display_.seconds_since_report();  // which was the beginning of this picture's decoding
  return record;
}

void PictureMaker::make(const ResolvedRequest& resolved, const Deliver& deliver) {
  display_.begin();
  int delivered = 0;
  const auto attempt = [&] {
    Request rest = resolved.request;  // what an attempt before this one did not finish
    rest.seed += static_cast<uint64_t>(delivered);
    rest.batch -= delivered;
    const int first = delivered;
    session_->trace = trace_;
    engine_->use_adapters(*session_, resolved.adapters);
    Progress progress = display_.progress();
    std::optional<StepPreview> preview;
    if (StepPreview::wanted(run_.settings)) {
      preview.emplace(run_, *session_);
      progress.step_done = [&](const StepDone& step) { preview->step_done(step); };
    }
    const PhaseTimes times = text_to_image(*session_, rest, progress, [&](Picture picture) {
      picture.index += first;
      deliver(picture, completed(resolved));
      ++delivered;
    });
    times_.load += times.load;
    times_.text += times.text;
    times_.references += times.references;
    times_.denoise += times.denoise;
    times_.decode += times.decode;
  };
  try {
    attempt();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::OutOfMemory || !step_down(e)) throw;
    attempt();
  }
}

int64_t PictureMaker::peak_bytes() const {
  const MemoryUse memory = memory_use();
  return engine_ && !engine_->device().is_host() ? memory.peak_device : memory.peak_resident;
}

}  // namespace flux2
