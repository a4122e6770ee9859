#include "train/run_settings.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "train/optimiser/optimiser_names.h"

namespace flux2 {

LearningRateOptions learning_rate_options(const TrainOptions& o, int64_t total_steps) {
  return {.lr_scheduler = o.lr_scheduler,
          .lr_warmup_steps = o.lr_warmup_steps,
          .lr_decay_steps = o.lr_decay_steps,
          .total_steps = total_steps,
          .lr_scheduler_num_cycles = static_cast<double>(o.lr_scheduler_num_cycles),
          .lr_scheduler_power = o.lr_scheduler_power,
          .lr_scheduler_timescale = o.lr_scheduler_timescale,
          .lr_scheduler_min_lr_ratio = o.lr_scheduler_min_lr_ratio,
          .lr_scheduler_args = o.lr_scheduler_args};
}

Retention retention_of(const TrainOptions& o) {
  return {o.save_every_n_epochs, o.save_every_n_steps,       o.save_last_n_epochs,
          o.save_last_n_steps,   o.save_last_n_epochs_state, o.save_last_n_steps_state};
}

RunFacts facts_at(const RunPlace& place, RunFacts known, const TrainOptions& options, const TrainingSet& data) {
  RunFacts facts = std::move(known);
  facts.finished_at = unix_now();
  facts.output_name = options.output_name;
  const bool own_rate = chooses_its_rate(options.optimizer_type, options.optimizer_args);
  if (!own_rate) facts.learning_rate = options.learning_rate;
  facts.train_items = data.training_items();
  facts.batches_per_epoch = data.batches_per_epoch();
  facts.epochs = place.total_epochs;
  facts.gradient_checkpointing = options.gradient_checkpointing;
  facts.gradient_accumulation_steps = options.gradient_accumulation_steps;
  facts.max_train_steps = place.total_steps;
  facts.lr_warmup_steps = options.lr_warmup_steps;
  // As the Python trainer writes it: a schedule of its own, which begins with the given rate.
  facts.lr_scheduler = own_rate ? "adafactor:" + python_number(options.learning_rate) : options.lr_scheduler;
  facts.base_model_version = data.model().full_name;
  if (!options.mixed_precision.empty()) facts.mixed_precision = options.mixed_precision;
  facts.seed = static_cast<uint64_t>(options.seed.value_or(0));
  if (!options.training_comment.empty()) facts.training_comment = options.training_comment;
  const std::string optimizer_class = optimiser_text(options.optimizer_type, {});
  facts.optimizer = optimizer_class.substr(0, optimizer_class.find('('));
  facts.optimizer_args = options.optimizer_args;
  facts.max_grad_norm = options.max_grad_norm;
  facts.fp8_base = options.fp8_base;
  facts.weighting_scheme = options.weighting_scheme;
  facts.logit_mean = options.logit_mean;
  facts.logit_std = options.logit_std;
  facts.mode_scale = options.mode_scale;
  facts.guidance_scale = options.guidance_scale;
  facts.timestep_sampling = options.timestep_sampling;
  facts.sigmoid_scale = options.sigmoid_scale;
  facts.discrete_flow_shift = options.discrete_flow_shift;
  facts.steps = place.step;
  facts.epoch = place.epoch;
  facts.full_bf16 = options.full_bf16;
  for (const DatasetConfig& d : data.datasets())
    facts.datasets.push_back(
        {.width = d.resolution.width,
         .height = d.resolution.height,
         .caption_extension = d.caption_extension.empty() ? std::nullopt : std::optional(d.caption_extension),
         .batch_size = d.batch_size,
         .num_repeats = d.num_repeats,
         .enable_bucket = d.enable_bucket,
         .bucket_no_upscale = d.bucket_no_upscale,
         .image_directory = d.image_directory.string(),
         .image_jsonl_file = d.image_jsonl_file.string(),
         .control_directory = d.control_directory.string(),
         .has_control = data.has_references()});
  const auto text = [](const std::string& s) { return s.empty() ? std::nullopt : std::optional(s); };
  facts.modelspec = {
      .architecture = options.metadata_arch.empty() ? architecture_title(data.model().full_name) : options.metadata_arch,
      .title = text(options.metadata_title),
      .author = text(options.metadata_author),
      .description = text(options.metadata_description),
      .license = text(options.metadata_license),
      .tags = text(options.metadata_tags),
      .resolution = text(options.metadata_reso),
      .min_timestep = options.min_timestep,
      .max_timestep = options.max_timestep};
  return facts;
}

std::map<std::string, double> flat_scalars(const Json& scalars) {
  std::map<std::string, double> flat;
  for (const auto& [name, value] : scalars.items()) {
    if (!value.is_array()) flat[name] = value.get<double>();
    for (size_t i = 0; value.is_array() && i < value.size(); ++i) flat[fmt::format("{}/{}", name, i)] = value[i].get<double>();
  }
  return flat;
}

Json scalars_from(const std::map<std::string, double>& flat) {
  Json scalars = Json::object();
  for (const auto& [key, value] : flat) {
    const bool whole = std::abs(value) < 0x1p53 && value == std::floor(value);  // counts were whole numbers
    const Json number = whole ? Json(static_cast<int64_t>(value)) : Json(value);
    const size_t slash = key.find('/');
    if (slash == key.npos) scalars[key] = number;
    else scalars[key.substr(0, slash)].push_back(number);  // sorted by name: lists have fewer than ten elements
  }
  return scalars;
}

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace flux2
