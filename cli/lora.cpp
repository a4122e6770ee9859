#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/adapters.h"
#include "app/registry_access.h"
#include "cli/command.h"
#include "hub/adapter_average.h"
#include "hub/adapter_tools.h"
#include "hub/recognise.h"
#include "hub/variants.h"

namespace flux2 {

namespace {

std::filesystem::path out_of(const Invocation& run) {
  const std::string out = run.settings.text("out");
  check(!out.empty(), "lora {} needs -o FILE", run.positional[0]);
  return out;
}

Component transformer_part(const std::string& model, Invocation& run) {
  return required_part(recognise(model_path(model, ComponentKind::Transformer, run), run.console.log()),
                       ComponentKind::Transformer);
}

NamedWeights weights_of(const Component& transformer, Invocation& run) {
  return {open_weights(transformer.path, run.console.log()), ModelPart::Transformer};
}

NamedWeights transformer_at(const std::string& model, Invocation& run) { return weights_of(transformer_part(model, run), run); }

// The model named by --model, or the published one of the width the adapter tells.
Flux2Config config_for(const Recognition& adapter, Invocation& run) {
  const Component& c = required_part(adapter, ComponentKind::Adapter);  // also where the model is named: FLUX.1's are refused
  if (const std::string model = run.settings.text("model"); !model.empty()) {
    if (const auto variant = find_variant(model)) return variant->config;
    return detect_flux2(transformer_at(model, run));
  }
  for (const Flux2Config& config : {klein_4b_config(), klein_9b_config(), dev_config()})
    if (c.variant.ends_with(config.name())) return config;
  throw Error(ErrorCode::InvalidArgument, fmt::format("{} does not tell which model it is for", adapter.path.string()),
              "name the model with --model");
}

Adapter adapter_at(const std::string& path, const Flux2Config& config, Invocation& run) {
  return {read_adapter(path, run.console.log()), config};
}

int run_info(Invocation& run) {
  const std::string path = model_path(run.positional.at(1), ComponentKind::Adapter, run).string();
  const Recognition r = recognise(path, run.console.log());
  const Component* adapter = r.find(ComponentKind::Adapter);
  const Component& c = adapter ? *adapter : required_part(r, ComponentKind::Adapter);  // which names what the file is
  Json json = {{"file", path},      {"family", c.family},   {"variant", c.variant},
               {"keys", c.dialect}, {"storage", c.storage}, {"tensors", c.tensors},
               {"bytes", c.bytes},  {"usable", c.usable()}, {"evidence", c.evidence}};
  if (!c.needs.empty()) json["needs"] = c.needs;
  if (!c.usable()) json["problem"] = c.problem;
  Json told = Json::object();
  for (const char* key :
       {"modelspec.title", "modelspec.author", "modelspec.trigger_phrase", "modelspec.description", "modelspec.license",
        "ss_output_name", "ss_base_model_version", "ss_steps", "ss_learning_rate", "ss_training_comment"})
    if (const auto at = r.metadata.find(key); at != r.metadata.end()) told[key] = at->second;
  json["metadata"] = told;
  if (c.usable()) {
    const AdapterFile file = read_adapter(path, run.console.log());
    json["modules"] = file.modules.size();
    if (!file.modules.empty() && file.modules[0].alpha) json["alpha"] = *file.modules[0].alpha;
  }
  if (run.console.json()) {
    run.console.result(pretty(json));
    return 0;
  }
  for (const auto& [key, value] : json.items())
    if (!value.is_object() && !(value.is_string() && value.get_ref<const std::string&>().empty()))
      run.console.result(fmt::format("{:<10} {}", key, value.is_string() ? value.get<std::string>() : value.dump()));
  for (const auto& [key, value] : told.items()) run.console.result(fmt::format("  {}: {}", key, value.get<std::string>()));
  return 0;
}

// "double_blocks.3", or the layer itself outside the blocks.
std::string block_of(const std::string& weight) {
  const size_t first = weight.find('.'), second = weight.find('.', first + 1);
  return weight.find("_blocks.") != std::string::npos ? weight.substr(0, second) : weight.substr(0, weight.rfind('.'));
}

int run_check(Invocation& run) {
  const std::string path = model_path(run.positional.at(1), ComponentKind::Adapter, run).string();
  const Recognition r = recognise(path, run.console.log());
  const Flux2Config config = config_for(r, run);
  const AdapterReport report = check_adapter(adapter_at(path, config, run));
  std::map<std::string, double> squares;
  int64_t low = 0, high = 0;
  for (const auto& layer : report.layers) {
    squares[block_of(layer.weight)] += layer.norm * layer.norm;
    low = low == 0 ? layer.rank : std::min(low, layer.rank), high = std::max(high, layer.rank);
  }
  const std::string verdict =
      !report.not_finite.empty() ? fmt::format("broken: {} layers hold no numbers", report.not_finite.size())
      : !report.unmatched.empty()
          ? fmt::format("usable with {}; {} layers have no place in it", config.name(), report.unmatched.size())
          : fmt::format("usable with {}", config.name());
  if (run.console.json()) {
    Json blocks = Json::object();
    for (const auto& [block, sum] : squares) blocks[block] = std::sqrt(sum);
    run.console.result(pretty({{"file", path},
                               {"model", config.name()},
                               {"layers", report.layers.size()},
                               {"rank", {low, high}},
                               {"blocks", blocks},
                               {"unmatched", report.unmatched},
                               {"unknown_keys", report.unknown_keys},
                               {"not_finite", report.not_finite},
                               {"text_encoder_keys", report.text_encoder_keys.size()},
                               {"verdict", verdict}}));
    return report.is_good() ? 0 : 1;
  }
  if (!report.layers.empty())
    run.console.result(fmt::format("{} of {}, {} layers, scale {:.4g}", report.layers[0].kind,
                                   low == high ? fmt::format("rank {}", low) : fmt::format("ranks {} to {}", low, high),
                                   report.layers.size(), report.layers[0].scale));
  for (const auto& [block, sum] : squares) run.console.result(fmt::format("  {:<32} norm {:.4g}", block, std::sqrt(sum)));
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    run.console.result(
        fmt::format("{} {}: {}{}", names.size(), what,
                    fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min<size_t>(3, names.size())), ", "),
                    names.size() > 3 ? ", …" : ""));
  };
  list("layers the model does not have", report.unmatched);
  list("unknown keys", report.unknown_keys);
  list("keys of text encoders, not used", report.text_encoder_keys);
  list("layers that hold something other than numbers", report.not_finite);
  run.console.result(verdict);
  return report.is_good() ? 0 : 1;
}

int done(Invocation& run, const std::filesystem::path& out, const Json& more = Json::object()) {
  Json json = {{"path", out.string()}};
  json.update(more);
  run.console.result(run.console.json() ? pretty(json) : out.string());
  return 0;
}

int run_lora_convert(Invocation& run) {
  const std::string path = model_path(run.positional.at(1), ComponentKind::Adapter, run).string();
  const Flux2Config config = config_for(recognise(path, run.console.log()), run);
  convert_adapter(adapter_at(path, config, run), config,
                  adapter_dialect_named(run.settings.choice("to", adapter_dialect_names(), "kohya")), out_of(run));
  return done(run, out_of(run));
}

int run_merge(Invocation& run) {
  const std::string model = run.settings.text("into");
  check(!model.empty(), "lora merge needs --into MODEL");
  const Component part = transformer_part(model, run);
  const NamedWeights base = weights_of(part, run);
  const Flux2Config config = detect_flux2(base);
  std::vector<AdapterUse> uses;
  for (size_t i = 1; i < run.positional.size(); ++i) {
    const AdapterChoice choice = adapter_choice(run.positional[i], run);
    uses.push_back({open_adapter(choice, config, run.console.log()), choice.strength});
  }
  ThreadPool threads(0);
  merge_into_file(base, uses, out_of(run), threads, part.training());
  return done(run, out_of(run));
}

int run_extract(Invocation& run) {
  check(run.positional.size() == 3, "lora extract needs two models: TUNED BASE");
  ThreadPool threads(0);
  const double error =
      extract_adapter(transformer_at(run.positional[1], run), transformer_at(run.positional[2], run),
                      run.settings.integer("rank", 1, 4096).value_or(32),
                      adapter_dialect_named(run.settings.choice("to", adapter_dialect_names(), "kohya")), out_of(run), threads);
  run.console.note(fmt::format("relative error of the difference: {:.2g}", error));
  return done(run, out_of(run), {{"error", error}});
}

int run_ema(Invocation& run) {
  std::vector<std::filesystem::path> files(run.positional.begin() + 1, run.positional.end());
  const double width = run.settings.number("sigma-rel", 0.01, 0.28).value_or(0.15);
  const AverageReport report = average_adapters(files, width, out_of(run));
  for (size_t i = 0; i < files.size(); ++i)
    run.console.note(fmt::format("{:5.1f} %  {}{}", 100 * report.weights[i], files[i].string(),
                                 report.times_known ? fmt::format("  after {} steps", report.times[i]) : ""));
  if (!report.times_known) run.console.warn("the files do not record increasing steps; they are treated as evenly spaced");
  return done(run, out_of(run), {{"weights", report.weights}, {"times", report.times}, {"times_known", report.times_known}});
}

}  // namespace

int run_lora(Invocation& run) {
  const std::string action = run.positional.empty() ? "" : run.positional[0];
  if (action == "extract") return run_extract(run);
  const bool known = action == "info" || action == "check" || action == "convert" || action == "merge" || action == "ema";
  check(!action.empty(), "missing action. Use one of: info, check, convert, merge, extract, ema");
  check(known, "unknown action \"{}\". Use one of: info, check, convert, merge, extract, ema", action);
  check(run.positional.size() >= 2, "lora {} needs an adapter file", action);
  if (action == "merge") return run_merge(run);
  if (action == "ema") return run_ema(run);
  check(run.positional.size() == 2, "unexpected argument \"{}\"", run.positional.back());
  if (action == "info") return run_info(run);
  return action == "check" ? run_check(run) : run_lora_convert(run);
}

}  // namespace flux2
