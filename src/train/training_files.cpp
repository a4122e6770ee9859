#include <fmt/format.h>

#include <cmath>
#include <map>

#include "train/log/state_folder.h"
#include "train/network_args.h"
#include "train/optimiser/optimiser_names.h"
#include "train/training_parts.h"

namespace flux2 {

namespace {

// The numbers of an optimiser as a state keeps them: element i of a list is "name/i".
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

}  // namespace

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void TrainingRun::Parts::resume(const std::filesystem::path& folder) {
  const LoadedState saved = read_state(folder);
  const bool other_data = check_resume(saved.state, {.options = train_options_json(options),
                                                     .dataset_hash = in.data->dataset_hash(),
                                                     .force = options.resume_force,
                                                     .log = in.log});
  network->restore({saved.tensors.weights.begin(), saved.tensors.weights.end()});
  optimiser->load_slots(saved.tensors.optimizer);
  optimiser->load_scalars(scalars_from(saved.state.optimizer.scalars));
  if (average) average->restore(saved.tensors.ema);
  step = first_step = saved.state.step;
  schedule_step = saved.state.scheduler.step;
  epoch = saved.state.epoch;
  micro = other_data ? 0 : saved.state.micro_in_epoch;
  samples_seen = saved.state.samples_seen;
  losses = LossWindow(saved.state.loss_window);
  elapsed_before = saved.state.elapsed_s;
  resumed = true;
  in.log.info("resuming {} at step {}", folder.string(), step);
}

void TrainingRun::Parts::removed(const std::vector<std::filesystem::path>& files) {
  for (const auto& file : files)
    if (log) log->removed({.step = step, .file = file});
}

void TrainingRun::Parts::save_checkpoint(const std::filesystem::path& file, int64_t at_epoch) {
  if (saved_file_step == step && file != names.last_checkpoint()) return;
  RunFacts facts = in.facts;
  facts.finished_at = unix_now();
  facts.output_name = options.output_name;
  facts.learning_rate = options.learning_rate;
  facts.train_items = in.data->training_items();
  facts.batches_per_epoch = in.data->batches_per_epoch();
  facts.epochs = total_epochs;
  facts.gradient_checkpointing = options.gradient_checkpointing;
  facts.gradient_accumulation_steps = options.gradient_accumulation_steps;
  facts.max_train_steps = total_steps;
  facts.lr_warmup_steps = options.lr_warmup_steps;
  facts.lr_scheduler = options.lr_scheduler;
  facts.base_model_version = in.data->model().full_name;
  if (!options.mixed_precision.empty()) facts.mixed_precision = options.mixed_precision;
  facts.seed = seed;
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
  facts.steps = step;
  facts.epoch = at_epoch;
  facts.full_bf16 = options.full_bf16;
  facts.network.reset();
  if (!options.full)
    facts.network =
        RunFacts::Network{.module = options.network_module,
                          .dim = adapter.dim,
                          .alpha = adapter.alpha,
                          .dropout = adapter.dropout.element > 0 ? std::optional(adapter.dropout.element) : std::nullopt,
                          .args = network_args_json(options)};
  for (const DatasetConfig& d : in.data->datasets())
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
         .has_control = in.data->has_references()});
  const auto text = [](const std::string& s) { return s.empty() ? std::nullopt : std::optional(s); };
  facts.modelspec = {
      .architecture = options.metadata_arch.empty() ? architecture_title(in.data->model().full_name) : options.metadata_arch,
      .title = text(options.metadata_title),
      .author = text(options.metadata_author),
      .description = text(options.metadata_description),
      .license = text(options.metadata_license),
      .tags = text(options.metadata_tags),
      .resolution = text(options.metadata_reso),
      .min_timestep = options.min_timestep,
      .max_timestep = options.max_timestep};
  // A whole model keeps the type of its weights.
  const CheckpointOptions format{
      .precision = options.full ? std::nullopt : std::optional(save_precision_named(options.save_precision)),
      .metadata = options.no_metadata ? MetadataKind::Minimal : MetadataKind::Full};
  const auto write = [&](const std::filesystem::path& path) {
    const WrittenCheckpoint written = write_checkpoint(path, network->tensors(), facts, format);
    if (log)
      log->checkpoint({.step = step, .epoch = at_epoch, .file = written.file, .sha256 = written.sha256, .bytes = written.bytes});
  };
  optimiser->evaluation_weights();
  write(file);
  if (average) {
    average->exchange();
    write(file.parent_path() / (file.stem().string() + "-ema.safetensors"));
    average->exchange();
  }
  optimiser->training_weights();
  last_file = file;
  saved_file_step = step;
}

void TrainingRun::Parts::save_state(const std::filesystem::path& folder) {
  if (saved_state_step == step && folder != names.last_state()) return;
  TrainState state;
  state.program = in.program;
  state.step = step;
  state.epoch = epoch;
  state.micro_in_epoch = micro;
  state.samples_seen = samples_seen;
  state.seed = seed;
  state.options = train_options_json(options);
  state.dataset_hash = in.data->dataset_hash();
  state.scheduler = {options.lr_scheduler, schedule_step};
  state.optimizer.name = options.optimizer_type;
  state.optimizer.args = options.optimizer_args;
  state.optimizer.step = schedule_step;
  state.optimizer.scalars = flat_scalars(optimiser->scalars());
  state.loss_window = log->losses().values();
  state.elapsed_s = log->elapsed_s();
  StateTensors tensors{.full_model = options.full, .weights = network->tensors(), .optimizer = optimizer_slots(), .ema = {}};
  if (average) tensors.ema = average->averages();
  write_state(folder, state, tensors);
  log->state({.step = step, .epoch = epoch, .folder = folder});
  saved_state_step = step;
}

}  // namespace flux2
