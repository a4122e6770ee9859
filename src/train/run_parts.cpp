#include "train/run_parts.h"

#include "base/path_exists.h"
#include "train/run_settings.h"

namespace flux2 {

void RunParts::open_folder(const Log& log) const {
  std::error_code failed;
  std::filesystem::create_directories(names.folder, failed);
  if (failed) fail(ErrorCode::CannotWrite, "cannot create {}: {}", names.folder.string(), failed.message());
  for (const auto& left : remove_leftover_states(names)) log.info("removed {}, which a killed run left", left.string());
  if (const auto file = names.last_checkpoint(); !options.resume && path_exists(file))
    log.warn("{} is from an earlier run; this run will replace it. Stop now and choose another output_name to keep it.",
             file.string());
}

void RunParts::resume_from(const Resumed& from) {
  const LoadedState saved = read_state(from.folder);
  const bool other_data = check_resume(saved.state, {.options = train_options_json(options),
                                                     .dataset_hash = from.dataset_hash,
                                                     .force = options.resume_force,
                                                     .log = from.log});
  from.restore(saved.tensors.weights);
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
  from.log.info("resuming {} at step {}", from.folder.string(), step);
}

void RunParts::write_run_state(const std::filesystem::path& folder, const std::string& program, const std::string& dataset_hash,
                               const std::function<StateTensors()>& tensors) {
  if (saved_state_step == step && folder != names.last_state()) return;
  TrainState state;
  state.program = program;
  state.step = step;
  state.epoch = epoch;
  state.micro_in_epoch = micro;
  state.samples_seen = samples_seen;
  state.seed = seed;
  state.options = train_options_json(options);
  state.dataset_hash = dataset_hash;
  state.scheduler = {options.lr_scheduler, schedule_step};
  state.optimizer.name = options.optimizer_type;
  state.optimizer.args = options.optimizer_args;
  state.optimizer.step = schedule_step;
  state.optimizer.scalars = flat_scalars(optimiser->scalars());
  state.loss_window = log->losses().values();
  state.elapsed_s = log->elapsed_s();
  StateTensors saved = tensors();
  saved.optimizer = optimiser->slots();
  if (average) saved.ema = average->averages();
  write_state(folder, state, saved);
  log->state({.step = step, .epoch = epoch, .folder = folder});
  saved_state_step = step;
}

void RunParts::write_weights(const std::filesystem::path& file, const std::function<void(const std::filesystem::path&)>& write) {
  if (saved_file_step == step && file != names.last_checkpoint()) return;
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

void RunParts::removed(const std::vector<std::filesystem::path>& files) {
  for (const auto& file : files)
    if (log) log->removed({.step = step, .file = file});
}

}  // namespace flux2
