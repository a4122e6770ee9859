#include "cli/request.h"

#include <fmt/format.h>

#include <limits>
#include <random>

#include "base/error.h"
#include "pipeline/picture_size.h"
#include "image/resize.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();

uint64_t choose_seed(const Settings& settings, int batch) {
  const std::string text = settings.text("seed", "random");
  if (text == "random" || text == "-1") return std::random_device{}();  // 32 bits
  const int64_t seed = *settings.integer("seed", 0, kMaxSeed);
  check(seed <= kMaxSeed - (batch - 1), "seed {} with {} pictures goes beyond 2^63-1", seed, batch);
  return static_cast<uint64_t>(seed);
}

// What a sampler of this model does with guidance.
void resolve_guidance(const Settings& settings, const ModelFiles& model, Request& request, const Log& log) {
  const ModelDefaults& defaults = model.defaults;
  const auto guidance = settings.number("guidance", 0, 100);
  auto cfg = settings.number("cfg", 0, 100);
  const auto foreign = settings.number("cfg-scale", 0, 100);
  request.guidance = guidance.value_or(defaults.guidance);

  if (defaults.guidance_kind == ModelDefaults::None) {
    if (guidance && *guidance != defaults.guidance)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} is distilled and has no guidance: {} {} cannot be used", model.id,
                              settings.find("guidance")->origin, *guidance),
                  "--cfg X guides any model with a second pass, or take a base model such as flux.2-klein-base-4b");
    if (foreign && *foreign != 1.0)
      log.warn("{} is distilled and has no guidance: --cfg-scale {} is ignored; --cfg forces it", model.id, *foreign);
  } else if (foreign && !cfg) {
    cfg = *foreign;
  }
  if (defaults.guidance_kind == ModelDefaults::TrueCfg) {
    if (!cfg) cfg = request.guidance;
    request.guidance = *cfg;
  }
  if (cfg && *cfg != 1.0) request.cfg = *cfg;  // at 1 the second pass cancels out
  if (!request.negative.empty() && !request.cfg)
    log.warn("the negative prompt is not used: it needs true guidance (--cfg above 1)");
}

Tensor tensor_in(const std::string& path, const char* name, bool required) {
  const auto source = open_weights(path);
  if (!source->find(name)) {
    if (required) fail(ErrorCode::Incompatible, "{} holds no tensor \"{}\"", path, name);
    return {};
  }
  return source->open(name);
}

void read_given_tensors(const Settings& settings, Request& request) {
  if (const Setting* file = settings.find("embeddings")) {
    request.given_text = tensor_in(file->values.back(), "text.embeddings", true);
    if (request.cfg) request.given_negative = tensor_in(file->values.back(), "negative.embeddings", false);
    check(!request.cfg || request.given_negative.defined(),
          "{} holds no tensor \"negative.embeddings\", which guidance needs", file->values.back());
  }
  if (const Setting* file = settings.find("noise-file")) {
    check(request.batch == 1, "{} holds the noise of one picture, but --batch is {}", file->values.back(),
          request.batch);
    request.given_noise = tensor_in(file->values.back(), "noise", true);
  }
}

// Whether somebody asked for a size; a preset only suggests one.
bool size_is_given(const Settings& settings) {
  for (const char* side : {"width", "height"})
    if (const Setting* setting = settings.find(side); setting && !setting->origin.starts_with("--preset")) return true;
  return false;
}

PictureSize choose_size(const Settings& settings, const ModelDefaults& defaults, const std::vector<GivenPicture>& references,
                        const Log& log) {
  constexpr int kLargestSide = 1 << 20;  // anything a person may type; the rules of sizes answer for the rest
  const bool no_match = settings.text("match") == "off";
  if (const Setting* match = settings.find("match"); match && !no_match) {
    check(!references.empty(), "{}: there is no reference whose size could be taken", match->origin);
    const int64_t index = *settings.integer("match", 1, static_cast<int64_t>(references.size()));
    return size_like(references[static_cast<size_t>(index - 1)].size());
  }
  if (!references.empty() && !no_match && !size_is_given(settings)) return size_like(references[0].size());
  const PictureSize wanted{static_cast<int>(settings.integer("width", 1, kLargestSide).value_or(defaults.width)),
                           static_cast<int>(settings.integer("height", 1, kLargestSide).value_or(defaults.height))};
  return valid_picture_size(wanted, settings.flag("strict"), log);
}

// Whether keys and values of references are computed once. Models are trained for one way or the other.
bool reuses_reference_keys(const Settings& settings, const ModelFiles& model, bool any_references, const Log& log) {
  const std::string how = settings.choice("ref-kv", {"auto", "on", "off"}, "auto");
  const bool reuse = how == "on" || (how == "auto" && model.kv);
  if (any_references && reuse != model.kv)
    log.warn("{} was {}trained to reuse the keys of references: --ref-kv {} changes its pictures", model.id,
             model.kv ? "" : "not ", how);
  return any_references && reuse;
}

// --strength: the first picture is what the run begins with.
void begin_with_picture(const Settings& settings, const std::vector<GivenPicture>& references, Request& request,
                        GenerationRecord& record) {
  const double strength = settings.number("strength", 0, 1).value_or(1.0);
  record.context = settings.choice("context", {"refs", "none"}, "refs") == "refs";
  if (strength == 1.0) return;
  if (references.empty())
    throw Error(ErrorCode::InvalidArgument, settings.find("strength")->origin + ": there is no picture to begin with",
                "give one with -i");
  record.strength = strength;
  request.canvas = Canvas{planes_of(cover(to_rgb(*references[0].image), request.width, request.height)), strength};
  if (!record.context) request.references.erase(request.references.begin());
}

}  // namespace

ResolvedRequest resolve_request(const Settings& settings, const ModelFiles& model, const std::string& prompt,
                                const Log& log, PictureShelf* shelf) {
  const ModelDefaults& defaults = model.defaults;
  Request request;
  request.prompt = prompt;
  request.negative = settings.text("negative");
  PictureShelf own_shelf(log);
  const std::vector<GivenPicture> references = (shelf ? *shelf : own_shelf).references(settings);
  for (const GivenPicture& reference : references) request.references.push_back(reference.prepared);
  request.reuse_reference_keys = reuses_reference_keys(settings, model, !references.empty(), log);
  const PictureSize size = choose_size(settings, defaults, references, log);
  request.width = size.width, request.height = size.height;
  request.steps = static_cast<int>(settings.integer("steps", 1, 256).value_or(defaults.steps));
  request.batch = static_cast<int>(settings.integer("batch", 1, 1024).value_or(1));
  request.seed = choose_seed(settings, request.batch);
  resolve_guidance(settings, model, request, log);
  if (model.distilled && request.steps != defaults.steps)
    log.warn("{} is distilled for {} steps: with {} quality is not guaranteed", model.id, defaults.steps,
             request.steps);
  const std::string schedule = settings.text("schedule", "model");
  request.schedule = parse_schedule(schedule);
  if (request.schedule.kind == Schedule::Sigmas)
    request.steps = static_cast<int>(make_sigmas(request.schedule, request.tokens(), request.steps).size()) - 1;
  request.shift = settings.number("shift", 1e-3, 1000).value_or(0);
  request.noise = parse_noise(settings.text("noise", "torch-cpu"));
  const std::string time_rounding = settings.text("time-rounding", "exact");
  request.time_rounding = parse_time_rounding(time_rounding);
  const std::string sampler = settings.choice("sampler", {"euler", "heun", "dpmpp2m"}, "euler");
  request.sampler = sampler_named(sampler);
  request.negative_references = !settings.flag("no-negative-refs");
  read_given_tensors(settings, request);

  GenerationRecord record;
  record.kind = references.empty() ? "generate" : "edit";
  for (const GivenPicture& reference : references) record.references.push_back(reference.record);
  begin_with_picture(settings, references, request, record);
  record.ref_kv = request.reuse_reference_keys;
  record.negative_references = request.negative_references;
  record.sampler = sampler;
  record.prompt = request.prompt;
  record.negative = request.negative;
  record.model = model.id;
  record.width = request.width, record.height = request.height, record.steps = request.steps;
  record.guidance = request.guidance;
  record.cfg = request.cfg;
  record.embedded_guidance = defaults.guidance_kind == ModelDefaults::Embedded;
  record.seed = request.seed;
  record.schedule = schedule;
  record.noise = request.noise.name();
  record.time_rounding = time_rounding;
  if (request.shift > 0) record.shift = request.shift;
  record.profile = settings.choice("profile", {"exact", "fast"}, "fast");
  return {std::move(request), std::move(record), settings.text("output"), {}};
}

SettingLayer layer_of_record(const GenerationRecord& record, bool with_seed, const std::string& origin) {
  SettingLayer layer;
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) layer[name] = {{value}, origin};
  };
  const auto set_number = [&](const char* name, auto value) {
    if (value > 0) set(name, fmt::format("{}", value));
  };
  set("prompt", record.prompt);
  set("negative", record.negative);
  set_number("width", record.width);
  set_number("height", record.height);
  set_number("steps", record.steps);
  set_number("guidance", record.guidance);
  if (record.cfg) set_number("cfg", *record.cfg);
  if (record.shift) set_number("shift", *record.shift);
  if (with_seed) set("seed", std::to_string(record.seed));
  // Names of other programs' schedules and generators mean nothing here.
  if (record.app.starts_with(kProgramName)) {
    if (find_variant(record.model)) set("model", record.model);
    set("schedule", record.schedule);
    set("noise", record.noise);
    set("profile", record.profile);
    set("time-rounding", record.time_rounding);
    if (!record.references.empty()) set("ref-kv", record.ref_kv ? "on" : "off");
    set("sampler", record.sampler);
    if (record.strength < 1.0) set_number("strength", record.strength);
    if (!record.context) set("context", "none");
    if (record.mask) {
      if (!record.mask->boxes.empty()) layer["mask-box"] = {record.mask->boxes, origin};
      if (record.mask->inverted) set("mask-invert", "true");
      if (!record.mask->aligned) set("align", "off");
      set("extend", record.mask->extended);
      set("grow", std::to_string(record.mask->grow));
      set("feather", std::to_string(record.mask->feather));
      set("inpaint-mode", record.mask->mode);
    }
    if (!record.negative_references) set("no-negative-refs", "true");
  }
  return layer;
}

}  // namespace flux2
