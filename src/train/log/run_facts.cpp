#include "train/log/run_facts.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <string_view>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/text.h"

namespace flux2 {

namespace {

std::string python_bool(bool value) { return value ? "True" : "False"; }
std::string python_text(const std::optional<std::string>& value) { return value.value_or("None"); }
std::string python_number_or_none(const std::optional<double>& value) { return value ? python_number(*value) : "None"; }

// Folders of a training machine do not belong into a file that is published.
std::string last_part(const std::string& path) {
  std::string_view text = path;
  while (text.size() > 1 && (text.ends_with('/') || text.ends_with('\\'))) text.remove_suffix(1);
  const size_t slash = text.find_last_of("/\\");
  return std::string(slash == text.npos ? text : text.substr(slash + 1));
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json dataset_json(const RunFacts::Dataset& d) {
  Json json = {{"resolution", {d.width, d.height}}};
  json["caption_extension"] = d.caption_extension ? Json(*d.caption_extension) : Json();
  json["batch_size_per_device"] = d.batch_size;
  json["num_repeats"] = d.num_repeats;
  json["enable_bucket"] = d.enable_bucket;
  json["bucket_no_upscale"] = d.bucket_no_upscale;
  if (!d.image_directory.empty()) json["image_directory"] = last_part(d.image_directory);
  if (!d.image_jsonl_file.empty()) json["image_jsonl_file"] = last_part(d.image_jsonl_file);
  if (!d.control_directory.empty()) json["control_directory"] = last_part(d.control_directory);
  json["has_control"] = d.has_control;
  return json;
}

std::string optimizer_text(const RunFacts& facts) {
  return facts.optimizer_args.empty() ? facts.optimizer
                                      : fmt::format("{}({})", facts.optimizer, fmt::join(facts.optimizer_args, ","));
}

std::string iso_local_time(double unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local)};
}

// "1024", "1024,768" and "1024x768" → "1024x768"
std::string resolution_text(const std::string& given) {
  const auto is_extent = [](std::string_view text) {
    return !text.empty() && text.size() <= 6 && text.find_first_not_of("0123456789") == text.npos;
  };
  const std::string_view all = trimmed(given);
  const size_t split = all.find_first_of(",x");
  const std::string_view width = trimmed(all.substr(0, split));
  const std::string_view height = split == all.npos ? width : trimmed(all.substr(split + 1));
  if (!is_extent(width) || !is_extent(height))
    throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" is not a resolution", printable(given)),
                Hint("write it as in {0}", {set_option("metadata_reso", "1024x768")}));
  return fmt::format("{}x{}", width, height);
}

void add_modelspec(const RunFacts& facts, std::map<std::string, std::string>& out) {
  const RunFacts::Modelspec& spec = facts.modelspec;
  const bool adapter = facts.network.has_value();
  const std::string architecture = spec.architecture.empty() ? architecture_title(facts.base_model_version) : spec.architecture;
  out["modelspec.sai_model_spec"] = "1.0.0";
  out["modelspec.architecture"] = adapter ? architecture + "/lora" : architecture;
  out["modelspec.implementation"] = "https://github.com/black-forest-labs/flux2";
  const std::string unnamed = fmt::format("{}@{}", adapter ? "LoRA" : "Checkpoint", python_number(facts.finished_at));
  out["modelspec.title"] = spec.title ? *spec.title : facts.output_name.value_or(unnamed);
  if (spec.resolution) out["modelspec.resolution"] = resolution_text(*spec.resolution);
  else if (!facts.datasets.empty())
    out["modelspec.resolution"] = fmt::format("{}x{}", facts.datasets[0].width, facts.datasets[0].height);
  out["modelspec.date"] = iso_local_time(facts.finished_at);
  const auto add = [&](const char* key, const std::optional<std::string>& value) {
    if (value) out[key] = *value;
  };
  add("modelspec.author", spec.author);
  add("modelspec.description", spec.description);
  add("modelspec.license", spec.license);
  add("modelspec.tags", spec.tags);
  if (spec.min_timestep || spec.max_timestep)
    out["modelspec.timestep_range"] = fmt::format("{},{}", spec.min_timestep.value_or(0), spec.max_timestep.value_or(1000));
}

// File names may be any bytes; a comment must not stop a run at the moment it is saved.
std::map<std::string, std::string> in_utf8(std::map<std::string, std::string> metadata) {
  for (auto& [key, value] : metadata)
    if (!is_utf8(value)) value = visible_text(value);
  return metadata;
}

void add_network(const RunFacts::Network& network, std::map<std::string, std::string>& out) {
  out["ss_network_module"] = network.module;
  out["ss_network_dim"] = network.dim ? fmt::format("{}", *network.dim) : "None";
  out["ss_network_alpha"] = python_number_or_none(network.alpha);
  if (network.args.is_object() && !network.args.empty()) out["ss_network_args"] = json_text(network.args);
}

}  // namespace

std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string architecture_title(const std::string& base_model_version) {
  constexpr std::string_view kFamily = "flux_2_";
  std::string rest = base_model_version;
  if (rest.starts_with(kFamily)) rest = rest.substr(kFamily.size());
  if (rest.starts_with("custom")) rest = "custom";
  for (char& c : rest) c = c == '_' ? '-' : c;
  return "Flux.2-" + rest;
}

std::map<std::string, std::string> metadata_of(const RunFacts& f, MetadataKind kind) {
  std::map<std::string, std::string> m;
  m["ss_base_model_version"] = f.base_model_version;
  if (f.network) add_network(*f.network, m);
  add_modelspec(f, m);
  for (const auto& [key, value] : f.extra) m[key] = value;
  if (kind == MetadataKind::Minimal) return in_utf8(std::move(m));

  const auto number = [](int64_t value) { return fmt::format("{}", value); };
  m["ss_session_id"] = fmt::format("{}", f.session_id);
  m["ss_training_started_at"] = python_number(f.started_at);
  m["ss_output_name"] = python_text(f.output_name);
  m["ss_learning_rate"] = python_number_or_none(f.learning_rate);
  m["ss_num_train_items"] = number(f.train_items);
  m["ss_num_batches_per_epoch"] = number(f.batches_per_epoch);
  m["ss_num_epochs"] = number(f.epochs);
  m["ss_gradient_checkpointing"] = python_bool(f.gradient_checkpointing);
  m["ss_gradient_checkpointing_cpu_offload"] = python_bool(f.gradient_checkpointing_cpu_offload);
  m["ss_gradient_accumulation_steps"] = number(f.gradient_accumulation_steps);
  m["ss_max_train_steps"] = number(f.max_train_steps);
  m["ss_lr_warmup_steps"] = f.lr_warmup_steps;
  m["ss_lr_scheduler"] = f.lr_scheduler;
  if (f.network) m["ss_network_dropout"] = python_number_or_none(f.network->dropout);
  m["ss_mixed_precision"] = python_text(f.mixed_precision);
  m["ss_seed"] = fmt::format("{}", f.seed);
  m["ss_training_comment"] = python_text(f.training_comment);
  m["ss_optimizer"] = optimizer_text(f);
  m["ss_max_grad_norm"] = python_number(f.max_grad_norm);
  m["ss_fp8_base"] = python_bool(f.fp8_base);
  m["ss_full_fp16"] = python_bool(f.full_fp16);
  m["ss_full_bf16"] = python_bool(f.full_bf16);
  m["ss_weighting_scheme"] = f.weighting_scheme;
  m["ss_logit_mean"] = python_number(f.logit_mean);
  m["ss_logit_std"] = python_number(f.logit_std);
  m["ss_mode_scale"] = python_number(f.mode_scale);
  m["ss_guidance_scale"] = python_number(f.guidance_scale);
  m["ss_timestep_sampling"] = f.timestep_sampling;
  m["ss_sigmoid_scale"] = python_number(f.sigmoid_scale);
  m["ss_discrete_flow_shift"] = python_number(f.discrete_flow_shift);
  Json datasets = Json::array();
  for (const RunFacts::Dataset& d : f.datasets) datasets.push_back(dataset_json(d));
  m["ss_datasets"] = json_text(datasets);
  if (f.sd_model_name) m["ss_sd_model_name"] = last_part(*f.sd_model_name);
  if (f.vae_name) m["ss_vae_name"] = last_part(*f.vae_name);
  m["ss_training_finished_at"] = python_number(f.finished_at);
  m["ss_steps"] = number(f.steps);
  m["ss_epoch"] = number(f.epoch);
  return in_utf8(std::move(m));
}

}  // namespace flux2
