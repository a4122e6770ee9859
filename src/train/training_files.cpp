#include <fmt/format.h>

#include "train/log/state_folder.h"
#include "train/network_args.h"
#include "train/run_settings.h"
#include "train/training_parts.h"

namespace flux2 {

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
  RunFacts facts = facts_at({step, at_epoch, total_steps, total_epochs}, in.facts, options, *in.data);
  facts.network.reset();
  if (!options.full)
    facts.network =
        RunFacts::Network{.module = options.network_module,
                          .dim = adapter.dim,
                          .alpha = adapter.alpha,
                          .dropout = adapter.dropout.element > 0 ? std::optional(adapter.dropout.element) : std::nullopt,
                          .args = network_args_json(options)};
  // A whole model keeps the type of its weights.
  const CheckpointFormat format{
      .precision = options.full ? std::nullopt : std::optional(save_precision_named(options.save_precision)),
      .metadata = options.no_metadata ? MetadataKind::Minimal : MetadataKind::Full};
  const auto write = [&](const std::filesystem::path& path) {
    const WrittenCheckpoint written = write_checkpoint(path, network->tensors(), facts, format);
    if (log)
      log->checkpoint({.step = step, .epoch = at_epoch, .file = written.file, .sha256 = written.sha256, .bytes = written.bytes});
    for (const TrainedModel::Companion& part : network->companions()) {
      const WrittenCheckpoint beside = write_checkpoint(
          path.parent_path() / (path.stem().string() + part.suffix + ".safetensors"), part.tensors, facts, format);
      if (log)
        log->checkpoint({.step = step, .epoch = at_epoch, .file = beside.file, .sha256 = beside.sha256, .bytes = beside.bytes});
    }
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
  StateTensors tensors{
      .full_model = options.full, .weights = network->state_tensors(), .optimizer = optimizer_slots(), .ema = {}};
  if (average) tensors.ema = average->averages();
  write_state(folder, state, tensors);
  log->state({.step = step, .epoch = epoch, .folder = folder});
  saved_state_step = step;
}

}  // namespace flux2
