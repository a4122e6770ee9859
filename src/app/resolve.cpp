#include "app/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "app/latent_files.h"
#include "app/model_knowledge.h"
#include "app/request_limits.h"
#include "app/resolve_inpaint.h"
#include "app/resolve_regions.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "image/resize.h"
#include "pipeline/picture_size.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();

uint64_t choose_seed(const RequestSpec& spec, int batch) {
  const int64_t seed = spec.seed.value_or(-1);
  if (seed < 0) return std::random_device{}();  // 32 bits
  check(seed <= kMaxSeed - (batch - 1), "seed {} with {} images exceeds the largest seed, 2^63-1", seed, batch);
  return static_cast<uint64_t>(seed);
}

Variation chosen_variation(const RequestSpec& spec, int batch) {
  const Variation variation = parse_variation(*spec.variation);
  check(variation.seed <= static_cast<uint64_t>(kMaxSeed - (batch - 1)),
        "{}: seed {} with {} images exceeds the largest seed, 2^63-1", spec.origin("variation"), variation.seed, batch);
  check(!spec.noise_file, "{}: the noise comes from a file, so there is no seed to vary", spec.origin("variation"));
  return variation;
}

// How this model uses guidance.
void resolve_guidance(const RequestSpec& spec, const ModelFiles& model, Request& request, const Log& log) {
  const ModelDefaults& defaults = model.defaults;
  std::optional<double> cfg = spec.cfg;
  request.guidance = spec.guidance.value_or(defaults.guidance);
  if (defaults.guidance_kind == ModelDefaults::None) {
    if (spec.guidance && *spec.guidance != defaults.guidance)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} is distilled and has no guidance: {} {} cannot be used", model.id, spec.origin("guidance"),
                              *spec.guidance),
                  Hint("{0} guides any model with a second pass; or use a base model such as {1}",
                       {set_option("cfg", "X"), set_option("model", "flux.2-klein-base-4b")}));
    if (spec.cfg_scale && *spec.cfg_scale != 1.0)
      log.warn("{} is distilled and has no guidance: {} {} is ignored; cfg forces it", model.id, spec.origin("cfg_scale"),
               *spec.cfg_scale);
  } else if (spec.cfg_scale && !cfg) {
    cfg = *spec.cfg_scale;
  }
  if (defaults.guidance_kind == ModelDefaults::TrueCfg) {
    if (!cfg) cfg = request.guidance;
    request.guidance = *cfg;
  }
  if (cfg && *cfg != 1.0) request.cfg = *cfg;  // at 1 the second pass cancels out
  if (!request.negative.empty() && !request.cfg)
    log.warn("the negative prompt is not used: it needs true guidance (cfg above 1)");
}

Tensor tensor_in(const std::string& path, const char* name, bool required) {
  const auto source = open_weights(path);
  if (!source->find(name)) {
    if (required) fail(ErrorCode::Incompatible, "{} does not contain a tensor \"{}\"", path, name);
    return {};
  }
  return source->open(name);
}

void read_given_tensors(const RequestSpec& spec, Request& request) {
  if (spec.embeddings) {
    request.given_text = tensor_in(*spec.embeddings, "text.embeddings", true);
    if (request.cfg) request.given_negative = tensor_in(*spec.embeddings, "negative.embeddings", false);
    check(!request.cfg || request.given_negative.defined(),
          "{} does not contain the tensor \"negative.embeddings\", which guidance needs", *spec.embeddings);
  }
  if (spec.noise_file) {
    check(request.batch == 1, "{} contains the noise for one image, but {} were requested", *spec.noise_file, request.batch);
    request.given_noise = tensor_in(*spec.noise_file, "noise", true);
  }
}

PictureSize size_of_reference(const GivenPicture& reference, const Log& log) {
  const PictureSize given = reference.size(), size = size_like(given);
  if (size.width != given.width || size.height != given.height)
    log.warn("{} is {}x{}; the result is {}x{}, since sides are multiples of 16", reference.record.name, given.width,
             given.height, size.width, size.height);
  return size;
}

PictureSize choose_size(const RequestSpec& spec, const ModelDefaults& defaults, const std::vector<GivenPicture>& references,
                        const Log& log) {
  const bool no_match = spec.match == "off";
  const bool asked = spec.is_asked("width") || spec.is_asked("height");
  // A size that is asked for is more than a configured match; both asked for contradict each other.
  if (spec.match && !no_match && (spec.is_asked("match") || !asked)) {
    if (asked)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} {} and {} both set the size of the image", spec.origin("match"), *spec.match,
                              spec.origin(spec.is_asked("width") ? "width" : "height")),
                  "leave one of them out");
    check(!references.empty(), "{}: no reference image is given", spec.origin("match"));
    const auto index = static_cast<size_t>(std::stoi(*spec.match));
    check(index <= references.size(), "{}: reference {} does not exist; the number of references is {}", spec.origin("match"),
          index, references.size());
    return size_of_reference(references[index - 1], log);
  }
  // A configured size or a preset applies to images without references.
  const bool configured = (spec.width || spec.height) && !spec.preset;
  if (!references.empty() && !no_match && !asked && !configured) return size_of_reference(references[0], log);
  const PictureSize wanted{static_cast<int>(spec.width.value_or(defaults.width)),
                           static_cast<int>(spec.height.value_or(defaults.height))};
  return valid_picture_size(wanted, spec.strict.value_or(false), log, std::max({wanted.width, wanted.height, kUsualSide}));
}

// With a strength below 1, the run starts from the first image.
void start_from_image(const RequestSpec& spec, const std::vector<GivenPicture>& references, Request& request,
                      GenerationRecord& record) {
  const bool is_reference = spec.context.value_or("refs") == "refs";
  if (!is_reference) record.request.context = "none";
  const double strength = spec.strength.value_or(1.0);
  if (strength == 1.0) return;
  if (references.empty())
    throw Error(ErrorCode::InvalidArgument, spec.origin("strength") + ": there is no image to start from",
                Hint("name one with {0}", {set_option("input")}));
  record.request.strength = strength;
  request.canvas = Canvas{planes_of(cover(to_rgb(*references[0].image), request.width, request.height)), strength};
  if (!is_reference) request.references.erase(request.references.begin());
}

// Tiles of a chosen size change the image a little. With the other choices, the memory of the machine decides.
RequestSpec::Text fixed_tile(const RequestSpec& spec) {
  const std::string tile = spec.vae_tile.value_or("auto");
  return tile == "auto" || tile == "off" ? std::nullopt : spec.vae_tile;
}

// The settings that were used, as a record names them.
RequestSpec used_settings(const RequestSpec& spec, const Request& request) {
  RequestSpec used;
  used.prompt = spec.prompt.value_or("");
  used.rewritten_prompt = spec.rewritten_prompt;
  used.negative = request.negative;
  used.width = request.width, used.height = request.height, used.steps = request.steps;
  used.guidance = request.guidance;
  used.cfg = request.cfg;
  used.seed = static_cast<int64_t>(request.seed);
  used.sampler = spec.sampler.value_or("euler");
  used.schedule = spec.schedule.value_or("model");
  used.noise = request.noise.name();
  used.profile = spec.profile.value_or("fast");
  used.rounding = spec.rounding.value_or("nearest");
  used.quant = spec.quant.value_or("none");
  used.quant_text_encoder = spec.quant_text_encoder;
  used.vae_dtype = spec.vae_dtype;
  used.vae_tile = fixed_tile(spec);
  if (spec.lora && !spec.lora->empty() && spec.lora_mode == "merge") used.lora_mode = spec.lora_mode;
  if (spec.base.value_or(false)) used.base = true;
  if (request.shift > 0) used.shift = request.shift;
  if (request.variation) used.variation = request.variation->text();
  if (request.tile_x || request.tile_y) used.tile = spec.tile;
  if (spec.time_rounding && *spec.time_rounding != "exact") used.time_rounding = spec.time_rounding;
  if (request.cache_tolerance > 0) used.cache = spec.cache;
  if (!request.references.empty()) {
    used.ref_kv = request.reuse_reference_keys ? "on" : "off";
    note_reference_rules(spec, used);
  }
  if (!request.negative_references) used.no_negative_refs = true;
  if (!request.watermark.empty()) used.watermark = spec.watermark;
  return used;
}

// Names what the request asks for and what cannot change its images.
void warn_of_unused(const RequestSpec& spec, const Request& request, Task task, const Log& log) {
  if (task != Task::Inpaint && spec.context == "none" && spec.is_asked("context") && !request.canvas)
    log.warn("{} none has no effect: the run does not start from an image, which it does with a strength below 1",
             spec.origin("context"));
  if (spec.no_negative_refs.value_or(false) && spec.is_asked("no_negative_refs")) {
    if (request.reference_tokens() == 0)
      log.warn("{} has no effect: there are no reference images", spec.origin("no_negative_refs"));
    else if (!request.cfg) log.warn("{} has no effect: it needs true guidance (cfg above 1)", spec.origin("no_negative_refs"));
  }
}

}  // namespace

bool reuses_reference_keys(const RequestSpec& spec, const ModelFiles& model, const Log& log) {
  const std::string how = spec.ref_kv.value_or("auto");
  const bool reuse = how == "on" || (how == "auto" && model.kv);
  if (reuse != model.kv)
    log.warn("{} was {}trained to reuse the keys of references: {} {} changes its images", model.id, model.kv ? "" : "not ",
             spec.origin("ref_kv"), how);
  return reuse;
}

WatermarkBits chosen_watermark(const RequestSpec& spec, int width, int height, const Log& log) {
  const std::string choice = spec.watermark.value_or("off");
  if (choice == "off") return {};
  if (is_large_enough_for_watermark(width, height)) return watermark_bits(choice);
  log.warn("an image of {}x{} is too small for a watermark; it gets none", width, height);
  return {};
}

MetadataChoice chosen_metadata(const RequestSpec& spec) {
  MetadataChoice choice = MetadataChoice::parse(spec.metadata.value_or("a1111,json"));
  choice.is_private = spec.is_private.value_or(false);
  const bool anything = choice.a1111 || choice.json || choice.comfy;
  if (anything && spec.no_provenance.value_or(false) && spec.is_asked("no_provenance"))
    throw Error(ErrorCode::InvalidArgument,
                spec.origin("no_provenance") + ": the other metadata would still say that a model generated the image",
                Hint("use it together with {0}", {set_option("metadata", "none")}));
  choice.provenance = anything || !spec.no_provenance.value_or(false);
  return choice;
}

ResolvedRequest resolve_generate(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images) {
  const ModelDefaults& defaults = model.defaults;
  ResolvedRequest resolved;
  resolved.spec = spec;
  Request& request = resolved.request;
  request.prompt = spec.rewritten_prompt.value_or(spec.prompt.value_or(""));
  request.negative = spec.negative.value_or("");
  check(is_utf8(spec.prompt.value_or("")), "{}: the prompt is not valid UTF-8", spec.origin("prompt"));
  check(is_utf8(request.prompt), "{}: the prompt is not valid UTF-8", spec.origin("rewritten_prompt"));
  check(is_utf8(request.negative), "{}: the negative prompt is not valid UTF-8", spec.origin("negative"));
  const std::vector<GivenPicture> references = images.references(spec);
  for (const GivenPicture& reference : references) request.references.push_back(reference.prepared);
  const bool any_references = !references.empty() || has_region_references(spec);
  request.reuse_reference_keys = any_references && reuses_reference_keys(spec, model, log);
  const PictureSize size = choose_size(spec, defaults, references, log);
  request.width = size.width, request.height = size.height;
  request.steps = static_cast<int>(spec.steps.value_or(defaults.steps));
  request.batch = static_cast<int>(spec.batch.value_or(1));
  request.seed = choose_seed(spec, request.batch);
  resolve_guidance(spec, model, request, log);
  if (model.distilled && request.steps != defaults.steps)
    log.warn("{} is distilled for {} steps: with {} quality is not guaranteed", model.id, defaults.steps, request.steps);
  request.schedule = parse_schedule(spec.schedule.value_or("model"));
  if (request.schedule.kind == Schedule::Sigmas)
    request.steps = static_cast<int>(make_sigmas(request.schedule, request.tokens(), request.steps).size()) - 1;
  request.shift = spec.shift.value_or(0);
  request.noise = parse_noise(spec.noise.value_or("torch-cpu"));
  request.time_rounding = parse_time_rounding(spec.time_rounding.value_or("exact"));
  request.sampler = sampler_named(spec.sampler.value_or("euler"));
  if (spec.variation) request.variation = chosen_variation(spec, request.batch);
  const std::string tile = spec.tile.value_or("off");
  request.tile_x = tile == "x" || tile == "both", request.tile_y = tile == "y" || tile == "both";
  request.cache_tolerance = cache_tolerance(spec.cache.value_or("off"));
  constexpr int kFewestCachedSteps = 8;
  if (request.cache_tolerance > 0 && request.steps < kFewestCachedSteps) {
    log.warn("{}: with {} steps every step is computed; the step cache needs {} steps or more", spec.origin("cache"),
             request.steps, kFewestCachedSteps);
    request.cache_tolerance = 0;
  }
  if (request.cache_tolerance > 0 && request.sampler == Sampler::Heun)
    throw Error(ErrorCode::InvalidArgument, spec.origin("cache") + ": the sampler heun cannot leave out steps",
                Hint("use {0}, or {1}", {set_option("sampler", "dpmpp2m"), set_option("cache", "off")}));
  request.negative_references = !spec.no_negative_refs.value_or(false);
  request.decode = spec.output_type != "latent";
  request.watermark = chosen_watermark(spec, request.width, request.height, log);
  read_given_tensors(spec, request);

  GenerationRecord& record = resolved.record;
  record.kind = references.empty() ? "generate" : "edit";
  record.model = model.id;
  if (!is_folder(model.transformer)) record.model_file = model.transformer.filename().string();
  record.embedded_guidance = defaults.guidance_kind == ModelDefaults::Embedded;
  record.request = used_settings(spec, request);
  ChosenPasses chosen = choose_passes(spec, request.width, request.height, log, images, record.request);
  resolved.passes = std::move(chosen.passes);
  record.mask_name = chosen.mask.name, record.mask_sha256 = chosen.mask.sha256;
  for (const GivenPicture& reference : references) record.references.push_back(reference.record);
  start_from_image(spec, references, request, record);
  resolve_regions(spec, size, images, log, resolved);
  return resolved;
}

ResolvedRequest resolve_latents(const RequestSpec& spec, const std::string& path, const Log& log) {
  check(spec.output_type.value_or("images") == "images", "{}: saved latents are decoded to images only",
        spec.origin("output_type"));
  chosen_metadata(spec);
  SavedLatents saved = read_latents(path, log);
  ResolvedRequest resolved;
  resolved.spec = spec;
  resolved.record = std::move(saved.record);
  Request& request = resolved.request;
  request.prompt = resolved.record.prompt();
  request.width = saved.width(), request.height = saved.height();
  request.seed = resolved.record.seed();
  request.given_latents = std::move(saved.latents);
  request.watermark = chosen_watermark(spec, request.width, request.height, log);
  RequestSpec& used = resolved.record.request;
  used.watermark = request.watermark.empty() ? RequestSpec::Text() : spec.watermark;
  used.rounding = spec.rounding.value_or("nearest");
  used.vae_tile = fixed_tile(spec);
  // A record with hires has the size of the first pass, and the latents are those of the last.
  const bool has_size = used.hires && used.width && used.height;
  if (!has_size) used.width = request.width, used.height = request.height;
  return resolved;
}

ResolvedRequest resolve(const RequestSpec& spec, const ModelFiles& model, Task task, const Log& log, InputImages* images,
                        const Limits& limits) {
  check_request_limits(spec, limits);
  chosen_metadata(spec);
  InputImages own(log, {}, limits);
  InputImages& shared = images ? *images : own;
  const auto noted = [&](ResolvedRequest resolved) {
    warn_of_unused(spec, resolved.request, task, log);
    std::string words = resolved.request.prompt;
    for (const Region& region : resolved.request.regions) words += " " + region.prompt;
    note_unknown(model, words, resolved.request.width, resolved.request.height, log);
    return resolved;
  };
  if (task == Task::Inpaint) return noted(resolve_inpaint(spec, model, log, shared));
  if (task == Task::Edit && (!spec.input || spec.input->empty()))
    throw Error(ErrorCode::InvalidArgument, "editing needs an image to start from",
                Hint("name one with {0}", {set_option("input")}));
  return noted(resolve_generate(spec, model, log, shared));
}

RequestSpec spec_of_record(const GenerationRecord& record, bool with_seed) {
  RequestSpec spec = record.request;
  if (!with_seed) spec.seed.reset();
  if (spec.negative && spec.negative->empty()) spec.negative.reset();
  // The size of an inpainted image is that of its canvas, not of the region that is worked on.
  if (record.kind == "inpaint") {
    spec.width.reset(), spec.height.reset();
    if (record.work_width > 0 && record.work_height > 0) spec.width = record.work_width, spec.height = record.work_height;
  }
  if (record.is_ours()) {
    // Older records only have the type of the weights in use, which may be that of the file.
    const auto& types = field("quant").choices;
    if (!spec.quant && std::find(types.begin(), types.end(), record.quant) != types.end()) spec.quant = record.quant;
    // Older programs computed attention in bf16, whatever the weights.
    if (!spec.attention && record.quant.starts_with("fp8")) spec.attention = "bf16";
    if (find_variant(record.model)) spec.model = record.model, spec.names_only.insert("model");
    else spec.base.reset();  // it is about a model that is not known here
    return spec;
  }
  // Other programs write a guidance of 0 when none was set.
  if (spec.guidance && *spec.guidance <= 0) spec.guidance.reset();
  if (spec.cfg && *spec.cfg <= 0) spec.cfg.reset();
  // Names of other programs' samplers, schedules and generators mean nothing here.
  RequestSpec common;
  for (const char* name : {"prompt", "negative", "width", "height", "steps", "guidance", "cfg", "shift", "seed"})
    if (const auto value = get_value(spec, field(name))) set_value(common, field(name), *value);
  return common;
}

}  // namespace flux2
