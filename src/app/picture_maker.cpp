#include "app/picture_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/adapters.h"
#include "app/safety.h"
#include "base/file_hash.h"
#include "engine/forecast.h"
#include "engine/image_prompt_adapter.h"
#include "engine/preview_colours.h"
#include "hub/recognise.h"
#include "pipeline/references.h"
#include "pipeline/regions.h"
#include "pipeline/texts_to_images.h"
#include "pipeline/tiles.h"
#include "record/generation_record.h"
#include "tensor/peak_meter.h"

namespace flux2 {

namespace {

constexpr int64_t kReferenceKeys = int64_t{2} << 30;     // bytes that stay in memory after a run
constexpr uint64_t kLargestAdapter = uint64_t{1} << 30;  // bytes; larger ones are not read for their hash
constexpr uint64_t kLargestEncoder = uint64_t{4} << 30;  // of image prompts

// max_vram for a GPU, max_ram for the CPU, whichever belongs to the device in use. 0: no limit was given.
int64_t memory_limit(const RequestSpec& spec) {
  const std::string device = spec.device.value_or("auto");
  const bool cpu = device.starts_with("cpu") || (device == "auto" && !gpu_is_there());
  const auto gib = cpu ? spec.max_ram : spec.max_vram;
  return gib ? static_cast<int64_t>(*gib * (1 << 30)) : 0;
}

int64_t decode_tile(const RequestSpec& spec) {
  const std::string tile = spec.vae_tile.value_or("auto");
  return tile == "auto" ? -1 : tile == "off" ? 0 : std::stoll(tile) / 16;
}

// With "auto", the cache uses a small part of the disk and contains only networks that take seconds to quantise.
QuantisedCacheOptions quant_cache(const RequestSpec& spec, const AppContext& context) {
  const std::string size = spec.quant_cache.value_or("auto");
  if (size == "off") return {};
  QuantisedCacheOptions options{.folder = quant_cache_folder(context),
                                .hashes = data_path(context.environment, "cache/hashes.json"),
                                .version = program_version()};
  if (size == "auto") {
    options.smallest = int64_t{256} << 20;
    options.keep_free = int64_t{10} << 30;
    options.keep_free_share = 0.1;
  } else {
    options.limit = std::stoll(size) << 30;
  }
  return options;
}

// The adapters that a run opens: those of its first request, and the others at strength 0, so that errors are reported early.
std::vector<AdapterChoice> adapters_of(std::span<const ResolvedRequest> requests) {
  std::vector<AdapterChoice> all;
  for (const ResolvedRequest& resolved : requests)
    for (AdapterChoice choice : resolved.adapters) {
      const bool first = &resolved == requests.data();
      const bool known = std::any_of(all.begin(), all.end(), [&](const AdapterChoice& other) {
        return other.path == choice.path && other.layers == choice.layers;
      });
      if (known && !first) continue;
      if (!first) choice.strength = 0;
      all.push_back(std::move(choice));
    }
  return all;
}

}  // namespace

// Adds up the time between reports by phase.
class PictureMaker::Stopwatch {
 public:
  Progress around(const Progress& outer) {
    Progress progress = outer;
    progress.report = [this, report = outer.report](Phase phase, int step, int steps) {
      const auto now = Clock::now();
      // The time since the last report belongs to the phase that was running then, unless this phase just begins.
      if (step > 0 && phase == phase_)
        spent_[static_cast<size_t>(phase)] += std::chrono::duration<double>(now - reported_).count();
      phase_ = phase, reported_ = now;
      if (report) report(phase, step, steps);
    };
    return progress;
  }
  double in(Phase phase) const { return spent_[static_cast<size_t>(phase)]; }
  double since_report() const { return std::chrono::duration<double>(Clock::now() - reported_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point reported_ = Clock::now();
  Phase phase_ = Phase::Load;
  std::array<double, kPhases> spent_{};  // by phase
};

std::filesystem::path quant_cache_folder(const AppContext& context) { return data_path(context.environment, "cache/quantised"); }

namespace {

// The choice that computes the same again with weights of this storage.
std::string attention_used(AttentionBits bits, const std::string& storage) {
  if (bits == AttentionBits::Eight || (bits == AttentionBits::AsWeights && storage == "fp8")) return "fp8";
  return bits == AttentionBits::AsWeights && storage.find("fp8") != std::string::npos ? "auto" : "bf16";
}

}  // namespace

EngineOptions engine_options(const RequestSpec& spec, const AppContext& context) {
  check(spec.vae_dtype != "bfloat16" || spec.profile != "exact", "{} bfloat16: profile exact decodes in float32",
        spec.origin("vae_dtype"));
  return {.device = spec.device.value_or("auto"),
          .threads = static_cast<int>(spec.threads.value_or(0)),
          .profile = spec.profile == "exact" ? Profile::Exact : Profile::Fast,
          .quant = quant_named(spec.quant.value_or("none")),
          .encoder_quant = spec.quant_text_encoder ? std::optional(quant_named(*spec.quant_text_encoder)) : std::nullopt,
          .attention = attention_named(spec.attention.value_or("auto")),
          .offload = offload_named(spec.offload.value_or("auto")),
          .streamed_blocks = static_cast<size_t>(spec.blocks_to_swap.value_or(0)),
          .decode_tile = decode_tile(spec),
          .decode_in_f32 = spec.vae_dtype == "float32",
          .memory_limit = memory_limit(spec),
          .adapter_mode = spec.lora_mode == "merge" ? AdapterMode::Merge : AdapterMode::Runtime,
          .plan_folder = data_path(context.environment, "cache/plans"),
          .quant_cache = quant_cache(spec, context),
          .log_prompts = context.log_prompts,
          .log = context.log};
}

PictureMaker::PictureMaker(const AppContext& context, ModelFiles files, const RequestSpec& spec)
    : context_(context), files_(std::move(files)), spec_(spec), hashes_(data_path(context.environment, "cache/hashes.json")) {}

void PictureMaker::load(std::span<const ResolvedRequest> requests, const Progress& progress) {
  EngineOptions options = engine_options(spec_, context_);
  options.adapters = adapters_of(requests);
  if (options.memory_limit > 0) options.memory_limit = std::max<int64_t>(1, options.memory_limit - taken_elsewhere_);
  const auto differs = [&](const ResolvedRequest& r) { return r.adapters != requests[0].adapters; };
  if (options.adapter_mode == AdapterMode::Merge && std::any_of(requests.begin(), requests.end(), differs))
    context_.log.warn(
        "merged adapters that change between images are merged again for each of them; lora_mode runtime is faster");
  open(options);
  measure(requests);
  load_model(progress);
}

// The memory that the requests need besides weights, and the prompts that should be encoded together.
void PictureMaker::measure(std::span<const ResolvedRequest> requests) {
  decodes_only_ = !requests.empty() && std::all_of(requests.begin(), requests.end(),
                                                   [](const ResolvedRequest& r) { return r.request.given_latents.defined(); });
  if (decodes_only_) return;
  if (!engine_->device().is_host() || engine_->options().memory_limit > 0) working_ = needed_by(requests);
  note_prompts(requests);
  const Recognition recognition = recognise(files_.transformer);
  storage_ = engine_->quant() == Quant::None ? required_part(recognition, ComponentKind::Transformer).storage
                                             : std::string(name_of(engine_->quant()));
  model_sha256_ = remembered_hash(files_.transformer, hashes_);
}

// Encoding them together pays if reloading the encoder means copying or quantising its weights again.
void PictureMaker::note_prompts(std::span<const ResolvedRequest> requests) {
  prompts_.clear();
  if (engine_->device().is_host() && engine_->encoder_quant() == Quant::None) return;
  for (const ResolvedRequest& resolved : requests) {
    for (std::string& prompt : prompts_of(resolved.request)) prompts_.push_back(std::move(prompt));
    if (resolved.request.cfg) prompts_.push_back(resolved.request.negative);
  }
}

void PictureMaker::expect(std::span<const ResolvedRequest> requests) {
  if (decodes_only_) return;
  note_prompts(requests);
  session_->prompts_ahead = prompts_;
}

// Of requests that are not known yet: what an image of the usual size needs.
WorkingBytes PictureMaker::needed_by(std::span<const ResolvedRequest> requests) const {
  if (requests.empty()) {
    Request usual;
    usual.width = files_.defaults.width, usual.height = files_.defaults.height;
    return working_bytes(*engine_, files_, usual);
  }
  WorkingBytes needed;
  for (const ResolvedRequest& resolved : requests)
    needed = WorkingBytes::largest(needed, working_bytes(*engine_, files_, largest_pass(resolved.request, resolved.passes)));
  return needed;
}

void PictureMaker::make_room_for(std::span<const ResolvedRequest> requests, const Progress& progress) {
  if (!engine_->device().is_host() || engine_->options().memory_limit == 0 || decodes_only_) return;
  const WorkingBytes needed = WorkingBytes::largest(working_, needed_by(requests));
  if (needed.whole <= working_.whole && needed.tiled <= working_.tiled) return;
  measure(requests);
  working_ = needed;
  load_model(progress);
}

void PictureMaker::open(const EngineOptions& options) {
  tiny_decoder_.reset();
  session_.reset();  // before the engine, and before another one takes memory
  engine_ = std::make_unique<Engine>(options);
}

void PictureMaker::change_files(ModelFiles files, std::span<const ResolvedRequest> requests, const Progress& progress) {
  files_ = std::move(files);
  measure(requests);
  load_model(progress, session_->model);
}

void PictureMaker::load_model(const Progress& progress, const std::shared_ptr<const LoadedModel>& kept) {
  const std::shared_ptr<const LoadedModel> previous = kept;  // `kept` may be a member of the session that is closed here
  const auto start = std::chrono::steady_clock::now();
  tiny_decoder_.reset();  // its weights belong to the session's stream
  latent_colours_.reset();
  session_.reset();
  const LoadParts parts{.transformer = !decodes_only_, .text_encoder = !decodes_only_ && !spec_.embeddings, .working = working_};
  session_ = engine_->open_session(engine_->load(files_, progress, parts, previous));
  session_->prompts_ahead = prompts_;
  text_cache_.reset();
  if (const double gib = spec_.text_cache.value_or(0); gib > 0 && !spec_.embeddings)
    if (const auto folder = text_cache_folder(context_); !folder.empty())
      text_cache_.emplace(folder, static_cast<int64_t>(gib * (1 << 30)), files_,
                          fmt::format("{} {} {}", engine_->device().is_host() ? "cpu" : engine_->device().name(),
                                      engine_->profile() == Profile::Exact ? "exact" : "fast", name_of(engine_->encoder_quant())),
                          hashes_);
  times_.load += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Shapes and memory, for people who ask for every detail.
void PictureMaker::log_phase(const Request& request, Phase phase) const {
  auto* meter = dynamic_cast<PeakMeter*>(session_->stream.get());
  const size_t peak = meter ? meter->restart_peak() : session_->stream->peak_bytes();
  const Models& models = session_->models;
  const auto prompts = static_cast<int64_t>(prompts_of(request).size());
  const int64_t text = prompts * models.text_length, image = request.tokens(), references = request.reference_tokens();
  std::string shape;
  switch (phase) {
    case Phase::Text:
      shape = fmt::format("states [{}, {}, {}]", request.cfg ? 2 : 1, text, models.transformer.config().text_width);
      break;
    case Phase::EncodeReferences:
      shape = fmt::format("references [{}, {}]", references, models.transformer.config().channels);
      break;
    case Phase::Denoise:
      shape = fmt::format("latents [{}, {}, {}], {} tokens a pass ({} text, {} image, {} of references)", request.batch, image,
                          models.transformer.config().channels, text + image + references, text, image, references);
      break;
    case Phase::Decode: shape = fmt::format("image [{}, {}, 3]", request.height, request.width); break;
    case Phase::Load:
    case Phase::EncodeImages:
    case Phase::Save: return;
  }
  const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  context_.log.debug("{}: {}; pool {:.1f} MiB at most in this phase, {:.1f} MiB still in use", name_of(phase), shape, mib(peak),
                     mib(session_->stream->used_bytes()));
}

// After running out of memory, tries once with single images and, on a GPU, streamed weights. False if this was tried before.
bool PictureMaker::step_down(const Error& error, const Progress& progress) {
  if (stepped_down_) return false;
  stepped_down_ = true;
  image_prompt_features_.release();
  EngineOptions options = engine_->options();
  const bool host = engine_->device().is_host();
  context_.log.warn("{}; trying once more {}", error.what(),
                    host ? "with one image at a time" : "with one image at a time and streamed weights");
  if (!host) {
    options.offload = Offload::Stream;
    open(options);
    load_model(progress);
  }
  session_->tokens_at_once = 0;
  if (session_->decode_tile == 0) session_->decode_tile = kDecodeTile;
  return true;
}

GenerationRecord PictureMaker::completed(const ResolvedRequest& resolved, const Picture& picture, const Stopwatch& watch) {
  GenerationRecord record = resolved.record;
  record.device = engine_->device().name() + ": " + engine_->device().description();
  if (decodes_only_) return record;
  record.quant = storage_;
  if (engine_->device().attends_in_8_bits() && engine_->profile() == Profile::Fast)
    record.request.attention = attention_used(engine_->attention(), storage_);
  record.request.noise = resolved.request.noise.on(engine_->device()).name();
  record.model_sha256 = model_sha256_;
  for (const AdapterChoice& adapter : resolved.adapters) {
    const std::string hash = remembered_hash(adapter.path, hashes_, kLargestAdapter);
    record.adapters.push_back({adapter.path.stem().string(), hash, adapter.strength, adapter.layers});
  }
  if (!resolved.image_prompts.empty()) {
    record.image_prompt_adapter.sha256 = remembered_hash(resolved.image_prompts.adapter, hashes_, kLargestAdapter);
    record.image_prompt_encoder.sha256 = remembered_hash(resolved.image_prompts.encoder, hashes_, kLargestEncoder);
  }
  record.step_cache = {picture.cache.steps, picture.cache.computed, picture.cache.error};
  record.seconds.text = watch.in(Phase::Text);
  record.seconds.vae_encode = watch.in(Phase::EncodeReferences);
  record.seconds.denoise = watch.in(Phase::Denoise);
  record.seconds.decode = watch.since_report();  // which was the beginning of this image's decoding
  return record;
}

// Whether the image may be delivered. A flagged one that is blurred may.
bool PictureMaker::passes(Picture& picture, GenerationRecord& record, const ResolvedRequest& resolved,
                          const Progress& progress) const {
  const RequestSpec& spec = resolved.spec;
  const bool keeps_latents = trace_ || spec.latents_out || spec.output_type.value_or("images") != "images";
  const Safety::Fate fate = context_.safety->judge_output(picture, resolved, files_, keeps_latents, progress.cancelled);
  if (fate == Safety::Fate::Blurred) {
    context_.log.warn("an image was blurred by the safety check");
    record.extra["safety"] = "blurred";
  }
  return fate != Safety::Fate::Refused;
}

void PictureMaker::make(const ResolvedRequest& resolved, const Deliver& deliver, const Progress& progress,
                        const OnPreview& on_preview) {
  Together calls{
      .deliver = [&](size_t, const Picture& picture, GenerationRecord record) { deliver(picture, std::move(record)); }};
  if (on_preview)
    calls.on_preview = [&](size_t, const SmallPreview& preview, const StepDone& step) { on_preview(preview.fitted(), step); };
  make_together({&resolved, 1}, calls, progress);
}

void PictureMaker::make_together(std::span<const ResolvedRequest> requests, const Together& calls, const Progress& progress) {
  std::vector<int> delivered(requests.size()), refused(requests.size());  // images of each request; the first counts both
  const std::shared_ptr<Safety> safety = context_.safety;
  const bool checks_output = safety && safety->checks_output();
  const std::shared_ptr<void> release(nullptr, [&](void*) {
    if (safety) safety->release();
  });
  if (safety)
    for (const ResolvedRequest& resolved : requests) safety->check_request(resolved, files_, progress.cancelled);
  std::vector<Request> complete;  // the requests with the vectors of their image prompts
  for (const ResolvedRequest& resolved : requests) {
    Request& request = complete.emplace_back(resolved.request);
    if (!resolved.image_prompts.empty())
      image_prompt_features_.fill(
          resolved.image_prompts, request,
          {.threads = static_cast<int>(spec_.threads.value_or(0)), .log = context_.log, .progress = progress});
  }
  const auto attempt = [&] {
    Stopwatch watch;
    std::vector<Request> rest;  // the images that an earlier attempt did not finish
    std::vector<size_t> which;  // the request that each of them belongs to
    for (size_t i = 0; i < requests.size(); ++i) {
      Request request = complete[i];
      if (request.batch <= delivered[i]) continue;
      const auto [seed, variation] = request.seed_of_image(delivered[i]);
      request.seed = seed, request.variation = variation;
      request.batch -= delivered[i];
      rest.push_back(first_pass(std::move(request), requests[i].passes));
      which.push_back(i);
    }
    const std::vector<int> before = delivered;
    const ResolvedRequest& first = requests[which[0]];
    session_->trace = trace_;
    if (!decodes_only_) {
      engine_->use_adapters(*session_, first.adapters);
      use_image_prompt(*session_, first.image_prompts.adapter);
    }
    Progress own = watch.around(progress);
    own.report = [this, &first, report = own.report](Phase phase, int step, int steps) {
      if (step == steps) log_phase(first.request, phase);
      report(phase, step, steps);
    };
    std::vector<std::string> prompts;
    for (const Request& request : rest) {
      for (std::string& prompt : prompts_of(request)) prompts.push_back(std::move(prompt));
      if (request.cfg) prompts.push_back(request.negative);
    }
    if (text_cache_ && !trace_)
      for (const std::string& prompt : prompts) text_cache_->bring(*session_, prompt);
    std::vector<std::optional<StepPreview>> previews(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestSpec& spec = requests[i].spec;
      if (spec.preview == "off" || !(calls.on_preview || spec.preview_file)) continue;
      if (checks_output) {  // a preview shows what has not been checked
        if (spec.preview_file) context_.log.warn("no preview is written, because the safety check looks at finished images only");
        continue;
      }
      const auto tiny = tiny_decoder(spec);
      previews[i].emplace(spec, *session_, tiny, tiny || spec.preview == "full" ? nullptr : latent_colours());
      own.step_done = [&](const StepDone& step) { show_step(step, previews, requests, delivered, calls); };
    }
    const auto hand_over = [&](size_t i, Picture picture) {
      picture.index += before[i];
      GenerationRecord record = completed(requests[i], picture, watch);
      if (checks_output && !passes(picture, record, requests[i], progress)) ++refused[i];
      else calls.deliver(i, picture, std::move(record));
      ++delivered[i];
    };
    std::vector<Picture> unfinished;
    PhaseTimes times = texts_to_images(*session_, rest, own, [&](size_t request, Picture picture) {
      if (first.passes.any()) unfinished.push_back(std::move(picture));
      else hand_over(which[request], std::move(picture));
    });
    for (Picture& picture : unfinished)
      hand_over(which[0], with_extra_passes(*session_, complete[which[0]], first.passes, std::move(picture), own, times));
    limit_reference_memory(*session_, kReferenceKeys);
    if (text_cache_)
      for (const std::string& prompt : prompts) text_cache_->keep(*session_, prompt);
    times_.load += times.load;
    times_.text += times.text;
    times_.references += times.references;
    times_.denoise += times.denoise;
    times_.decode += times.decode;
  };
  try {
    attempt();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::OutOfMemory) throw;
    if (!(memory_relief_ && memory_relief_()) && !step_down(e, progress)) throw;
    attempt();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (refused[i] == 0) continue;
    const Error error = refused_images(refused[i], requests[i].request.batch);
    if (!calls.refused) throw error;
    calls.refused(i, error);
  }
}

std::shared_ptr<const TinyDecoder> PictureMaker::tiny_decoder(const RequestSpec& spec) {
  const std::filesystem::path file = tiny_decoder_file(spec, session_->models.vae->config, context_);
  if (file.empty()) return nullptr;
  if (!tiny_decoder_ || tiny_decoder_file_ != file) {
    tiny_decoder_ = std::make_shared<const TinyDecoder>(in_context("loading the tiny autoencoder", [&] {
      return load_tiny_decoder(*open_weights(file, context_.log), *session_->stream, session_->activations);
    }));
    tiny_decoder_file_ = file;
  }
  return tiny_decoder_;
}

// Kept as long as the autoencoder: reading them from their file would take time between two jobs of a server.
std::shared_ptr<const LatentColours> PictureMaker::latent_colours() {
  if (!latent_colours_)
    latent_colours_ =
        std::make_shared<const LatentColours>(flux2::latent_colours(*session_, data_path(context_.environment, "cache")));
  return latent_colours_;
}

// The preview of the first image that each request has in this batch.
void PictureMaker::show_step(const StepDone& step, std::span<std::optional<StepPreview>> previews,
                             std::span<const ResolvedRequest> requests, std::span<const int> delivered, const Together& calls) {
  int64_t row = 0;
  for (size_t i = 0; i < requests.size() && row < step.x.dim(0); ++i) {
    const int64_t left = requests[i].request.batch - delivered[i];
    if (left == 0) continue;
    const int64_t first = std::exchange(row, row + left);
    if (!previews[i] || (calls.wants_preview && !calls.wants_preview(i, step))) continue;
    const Tensor x = step.x.narrowed(0, first, 1), v = step.v.narrowed(0, first, 1);
    SmallPreview preview = previews[i]->step_done({step.step, step.steps, step.sigma, step.rows, step.columns, x, v});
    if (calls.on_preview) calls.on_preview(i, std::move(preview), step);
  }
}

bool can_make_together(const ResolvedRequest& a, const ResolvedRequest& b) {
  return a.adapters == b.adapters && !a.finish && !b.finish && !a.passes.any() && !b.passes.any() && a.image_prompts.empty() &&
         b.image_prompts.empty() && can_run_together(a.request, b.request);
}

int64_t PictureMaker::peak_bytes() const {
  const MemoryUse memory = memory_use();
  return engine_ && !engine_->device().is_host() ? memory.peak_device : memory.peak_resident;
}

std::array<PictureMaker::Cache, 3> PictureMaker::caches() const {
  std::array<Cache, 3> all = {Cache{"text_states"}, Cache{"reference_latents"}, Cache{"reference_keys", 0, kReferenceKeys}};
  if (!session_) return all;
  const auto fill = [](Cache& cache, const TensorCache& from) {
    cache.bytes = from.bytes(), cache.limit = from.limit(), cache.hits = from.hits(), cache.misses = from.misses();
  };
  fill(all[0], session_->prompt_cache);
  fill(all[1], session_->picture_cache);
  if (session_->reference_memory) all[2].bytes = session_->reference_memory->bytes();
  all[2].hits = session_->reference_hits, all[2].misses = session_->reference_misses;
  return all;
}

int64_t PictureMaker::held_bytes() const {
  if (!session_) return 0;
  if (!engine_->device().is_host()) return memory_use().peak_device;
  int64_t bytes = 0;
  for (const LoadedPart* part : {&session_->model->transformer, &session_->model->text_encoder, &session_->model->vae})
    for (const LoadedPart::File& file : part->files) bytes += static_cast<int64_t>(file.bytes);
  return bytes + image_prompt_features_.held_bytes();
}

}  // namespace flux2
