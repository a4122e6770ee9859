#include "server/jobs/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "app/prepare.h"
#include "base/text.h"
#include "engine/forecast.h"
#include "engine/language.h"
#include "server/http/errors.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/studio_request.h"
#include "server/jobs/text_request.h"

namespace flux2 {

namespace {

constexpr size_t kMostKnown = 1000;
constexpr double kUsableShare = 0.95;  // of a GPU's memory

// What the memory of a request depends on: everything but its texts and seeds, and the sizes of its images.
std::string shape_of(const Json& request, const AssetStore& assets) {
  Json shape = request;
  for (const char* member : {"prompt", "negative", "seed", "variation", "client_ref", "priority", "preempt", "tags", "save",
                             "project_id", "elements", kResolution})
    shape.erase(member);
  const auto size_of = [&](Json& image) {
    const auto asset = assets.get(image.get<std::string>().substr(std::string_view("asset:").size()));
    image = asset ? fmt::format("{}x{}", asset->width, asset->height) : "";
  };
  if (shape.contains("references"))
    for (Json& image : shape["references"]) size_of(image);
  if (shape.contains("regions"))  // the area of a region matters, so its mask stays as it is
    for (Json& region : shape["regions"]) {
      region.erase("prompt");
      if (region.contains("references") && region["references"].is_array())
        for (Json& image : region["references"]) size_of(image);
    }
  if (shape.contains("image_prompts"))  // every image becomes the same number of tokens
    for (Json& prompt : shape["image_prompts"]) prompt.erase("image");
  for (const char* member : {"canvas", "mask", "mask_from_diff", "detail_mask"})
    if (shape.contains(member)) size_of(shape[member]);
  return shape.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t usable_bytes(const Engine& engine) {
  return static_cast<int64_t>(kUsableShare * static_cast<double>(engine.device().memory().total));
}

bool runs_on_host(const RequestSpec& spec) {
  const std::string device = spec.device.value_or("auto");
  return device.starts_with("cpu") || (device == "auto" && !gpu_is_there());
}

Forecast on_empty_device(const RequestSpec& spec, const PreparedRun& run, const AppContext& context) {
  const ResolvedRequest& first = run.requests.front();
  return forecast_memory(Engine(forecast_options(spec, first.adapters, context)), run.model,
                         largest_pass(first.request, first.passes));
}

int64_t work_of(const PreparedRun& run) {
  double pixels = 0;
  for (const ResolvedRequest& one : run.requests) {
    const double images = static_cast<double>(one.request.steps) * one.request.batch;
    pixels += static_cast<double>(one.request.width) * one.request.height * images;
    if (const auto& hires = one.passes.hires) pixels += hires->strength * hires->width * hires->height * images;
  }
  return std::max<int64_t>(std::llround(pixels / 1e6), 1);
}

}  // namespace

EngineOptions forecast_options(const RequestSpec& spec, const std::vector<AdapterChoice>& adapters, const AppContext& context) {
  EngineOptions options = engine_options(spec, context);
  options.adapters = adapters;
  if (options.memory_limit > 0) return options;
  const Engine probe(options);
  if (!probe.device().is_host()) options.memory_limit = usable_bytes(probe);
  return options;
}

Planner::Verdict Planner::text_verdict(const Json& request) const {
  AppContext quiet = context_;
  quiet.log = {};
  const TextRequest text = text_request(request, defaults_, assets_, quiet);
  Verdict verdict{.work = 1};
  if (!text.is_local() || (runs_on_host(text.spec) && !text.spec.max_ram)) return verdict;
  const Engine engine(engine_options(text.spec, quiet));
  const int64_t limit = engine.options().memory_limit > 0 ? engine.options().memory_limit : usable_bytes(engine);
  const int64_t bytes = language_bytes(engine, text.model, text.sees);
  if (bytes <= limit) return verdict;
  verdict.problem = fmt::format("the language model of {} needs {} of memory, but the server may use {}", text.model.id,
                                byte_text(static_cast<uint64_t>(bytes)), byte_text(static_cast<uint64_t>(limit)));
  verdict.hint = "a quantised text encoder needs less";
  return verdict;
}

Planner::Verdict Planner::verdict_of(const Json& request) const {
  Settings settings = defaults_.with(settings_of_job(request, assets_, context_));
  PromptLine line;
  line.prompt = request.value("prompt", std::string());
  AppContext quiet = context_;
  quiet.log = {};
  const PreparedRun run = prepare(settings, {line}, task_of_kind(request.value("kind", std::string("generate"))), quiet);
  const RequestSpec& spec = run.requests.front().spec;
  // On a CPU without a limit the system decides: mapped weights leave memory when something else needs it.
  Verdict verdict;
  verdict.work = work_of(run);
  if (runs_on_host(spec) && !spec.max_ram) return verdict;
  const Forecast forecast = on_empty_device(spec, run, quiet);
  if (forecast.fits()) return verdict;
  std::vector<std::string> fitting;
  for (const char* quant : {"fp8", "int8", "q4_0"}) {
    RequestSpec smaller = spec;
    smaller.quant = quant;
    try {
      if (on_empty_device(smaller, run, quiet).fits()) fitting.push_back(fmt::format("\"quant\": \"{}\"", quant));
    } catch (const Error&) {  // not possible on this device
    }
  }
  return {fmt::format("this request needs {} of memory, but the server may use {}",
                      byte_text(static_cast<uint64_t>(forecast.peak())), byte_text(static_cast<uint64_t>(forecast.limit))),
          fitting.empty() ? "ask for a smaller size, fewer images or fewer references"
                          : fmt::format("it fits with {}; a smaller size needs less, too", fmt::join(fitting, " or ")),
          verdict.work};
}

int64_t Planner::check(const Json& request) {
  const std::string kind = request.value("kind", std::string("generate"));
  if (!is_image_kind(kind) && !is_text_kind(kind)) return 0;
  const std::string shape = shape_of(request, assets_);
  Verdict verdict;
  {
    std::unique_lock lock(mutex_);
    const auto found = known_.find(shape);
    if (found != known_.end()) {
      verdict = found->second;
    } else {
      lock.unlock();
      verdict = is_text_kind(kind) ? text_verdict(request) : verdict_of(request);
      lock.lock();
      if (known_.size() >= kMostKnown) known_.clear();
      known_[shape] = verdict;
    }
  }
  if (verdict.problem.empty()) return verdict.work;
  HttpError error(400, "does_not_fit", verdict.problem);
  error.hint = verdict.hint;
  throw error;
}

}  // namespace flux2
