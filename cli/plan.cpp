#include "cli/plan.h"

#include <fmt/format.h>

#include <map>

#include "app/adapters.h"
#include "app/picture_maker.h"
#include "app/request_limits.h"
#include "base/text.h"
#include "cli/bench/bench.h"
#include "engine/forecast.h"

namespace flux2 {

namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Json as_json(const Forecast& f) {
  Json phases = Json::array();
  for (const PhaseForecast& p : f.phases)
    phases.push_back({{"phase", name_of(p.phase)},
                      {"weight_bytes", p.weights},
                      {"activation_bytes", p.activations},
                      {"peak_bytes", p.peak()},
                      {"seconds", rounded(p.seconds, 1e-3)}});
  return {{"device", f.device},
          {"available_bytes", f.memory.available},
          {"limit_bytes", f.limit},
          {"decode_tile", 16 * f.decode_tile},
          {"adapter_bytes", f.adapters},
          {"placement", f.where},
          {"encoder_leaves", f.placement.encoder_leaves},
          {"transformer_blocks_resident", f.placement.transformer_blocks},
          {"phases", phases},
          {"peak_bytes", f.peak()},
          {"seconds", rounded(f.seconds(), 1e-3)},
          {"fits", f.fits()}};
}

void print(Console& console, const ModelFiles& model, const ResolvedRequest& resolved, const Forecast& f) {
  const Request& request = resolved.request;
  console.result(fmt::format("{} at {}x{}, {} steps, {} {}, on {}", model.id, request.width, request.height, request.steps,
                             request.batch, request.batch == 1 ? "image" : "images", f.device));
  console.result(
      fmt::format("{:<12} {:>12} {:>16} {:>10} {:>10}", "phase", "weights GiB", "activations GiB", "peak GiB", "seconds"));
  for (const PhaseForecast& p : f.phases)
    console.result(fmt::format("{:<12} {:>12.2f} {:>16.2f} {:>10.2f} {:>10.2f}", name_of(p.phase), gib(p.weights),
                               gib(p.activations), gib(p.peak()), p.seconds));
  const bool limited = f.limit != f.memory.available;
  console.result(fmt::format("{:<12} {:>12} {:>16} {:>10.2f} {:>10.2f}   of {:.2f} GiB {}{}", "total", "", "", gib(f.peak()),
                             f.seconds(), gib(f.limit), limited ? "allowed" : "available", f.fits() ? "" : ": does not fit"));
  if (f.adapters > 0)
    console.result(fmt::format("adapters: {} (counted as weights)", byte_text(static_cast<uint64_t>(f.adapters))));
  if (f.decode_tile > 0) console.result(fmt::format("the image is decoded in tiles of {} pixels", 16 * f.decode_tile));
  console.result(f.where);
  if (!f.fits()) console.result("--quant int8 or q4_0 makes the weights smaller, --size the activations");
}

// How often the transformer runs for all images of one pass.
int64_t transformer_passes(const Request& request) {
  const int64_t passes = passes_of(request.sampler, static_cast<int>(request.sigmas().size()) - 1);
  return passes * request.batch * (request.cfg ? 2 : 1);
}

int64_t transformer_passes(const ResolvedRequest& resolved) {
  int64_t passes = transformer_passes(resolved.request);
  for (const Request& later : later_passes(resolved.request, resolved.passes))
    passes += resolved.request.batch * transformer_passes(later);
  return passes;
}

// Forecasts of a run. Requests that differ in their prompts and seeds alone share one.
class Forecasts {
 public:
  Forecasts(const Invocation& run, const ModelFiles& model) : run_(run), model_(model) {}

  const Forecast& of(const ResolvedRequest& resolved) {
    Json key = to_json(resolved.record);
    for (const char* unimportant : {"prompt", "negative", "seed"}) key.erase(unimportant);
    key["batch"] = resolved.request.batch;
    for (const AdapterChoice& adapter : resolved.adapters) key["adapters"].push_back(text_of(adapter));
    const auto [found, is_new] = known_.try_emplace(key.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (is_new) {
      EngineOptions options = engine_options(resolved.spec, run_);
      options.adapters = resolved.adapters;
      found->second = forecast_of_all_passes(Engine(options), model_, resolved.request, resolved.passes);
    }
    return found->second;
  }

 private:
  const Invocation& run_;
  const ModelFiles& model_;
  std::map<std::string, Forecast> known_;
};

}  // namespace

int print_plan(Invocation& run, const PreparedRun& prepared) {
  const ModelFiles& model = prepared.model;
  Json plan = {{"model",
                {{"id", model.id},
                 {"transformer", model.transformer.string()},
                 {"vae", model.vae.string()},
                 {"text_encoder", model.text_encoder.string()},
                 {"tokenizer", model.tokenizer.string()},
                 {"distilled", model.distilled},
                 {"bundled", model.bundled},
                 {"reasons", model.reasons}}},
               {"requests", Json::array()}};
  Forecasts forecasts(run, model);
  for (const ResolvedRequest& resolved : prepared.requests) {
    const Request& request = resolved.request;
    Json json = to_json(resolved.record);
    for (const char* key : {"device", "time_ms", "index"}) json.erase(key);
    json["batch"] = request.batch;
    json["output"] = resolved.output();
    json["plan"] = {{"picture_tokens", request.tokens()},
                    {"reference_tokens", request.reference_tokens()},
                    {"text_tokens", model.defaults.text_length},
                    {"transformer_passes", transformer_passes(resolved)},
                    {"sigmas", request.sigmas()},
                    {"forecast", as_json(forecasts.of(resolved))}};
    plan["requests"].push_back(std::move(json));
  }
  run.console.result(plan.dump(2, ' ', false, Json::error_handler_t::replace));
  return 0;
}

int run_plan(Invocation& run) {
  // Every round needs the same. What is refused when it runs is refused here too.
  const RequestSpec spec = run.spec();
  check_run_limits(1, spec, run.limits);
  run.settings = run.settings.with({{"repeat", {{"1"}, "plan"}}});
  const PreparedRun prepared = prepare_run(run);
  if (run.console.json()) return print_plan(run, prepared);
  Forecasts forecasts(run, prepared.model);
  for (const ResolvedRequest& resolved : prepared.requests) print(run.console, prepared.model, resolved, forecasts.of(resolved));
  if (const int64_t rounds = spec.repeat.value_or(1); rounds > 1)
    run.console.result(fmt::format("repeated {} times, one after the other", rounds));
  return 0;
}

}  // namespace flux2
