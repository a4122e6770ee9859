#include "train/run_parts.h"

#include <utility>

#include "base/path_exists.h"
#include "train/optimiser/optimiser_names.h"
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
                                                     .log = from.log,
                                                     .base = from.base});
  from.restore(saved.tensors.weights);
  optimiser->load_slots(saved.tensors.optimizer);
  optimiser->load_scalars(scalars_from(saved.state.optimizer.scalars));
  if (average) average->restore(saved.tensors.ema);
  step = first_step = saved.state.step;
  schedule_step = saved.state.scheduler.step;
  epoch = saved.state.epoch;
  // Each rank counts its own batches. What is left over is computed again rather than left out.
  const int64_t saved_ranks = saved.state.ranks > 0 ? saved.state.ranks : ranks;
  const int64_t batches = saved.state.micro_in_epoch * saved_ranks;
  micro = other_data ? 0 : batches / ranks;
  if (!other_data && batches % ranks != 0)
    from.log.warn(
        "the state was saved by {} processes and is continued by {}: {} of the {} batches that this epoch has behind it are "
        "computed again",
        saved_ranks, ranks, batches % ranks, batches);
  samples_seen = saved.state.samples_seen;
  losses = LossWindow(saved.state.loss_window);
  elapsed_before = saved.state.elapsed_s;
  resumed = true;
  from.log.info("resuming {} at step {}", from.folder.string(), step);
}

void RunParts::write_run_state(const std::filesystem::path& folder, const StateFacts& facts,
                               const std::function<StateTensors()>& tensors) {
  if (const auto saved = saved_steps.find(folder); saved != saved_steps.end() && saved->second == step) return;
  TrainState state;
  state.program = facts.program;
  state.step = step;
  state.epoch = epoch;
  state.micro_in_epoch = micro;
  state.ranks = ranks;
  state.samples_seen = samples_seen;
  state.seed = seed;
  state.options = train_options_json(options);
  state.dataset_hash = facts.dataset_hash;
  state.base = facts.base;
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
  saved_steps[folder] = step;
}

void RunParts::write_weights(const std::filesystem::path& file, const std::function<void(const std::filesystem::path&)>& write) {
  if (const auto saved = saved_steps.find(file); saved != saved_steps.end() && saved->second == step) return;
  with_used_weights(false, [&] { write(file); });
  if (average) with_used_weights(true, [&] { write(file.parent_path() / (file.stem().string() + "-ema.safetensors")); });
  last_file = file;
  saved_steps[file] = step;
}

void RunParts::with_used_weights(bool averaged, const std::function<void()>& use) {
  weights_are_whole = false;
  optimiser->evaluation_weights();
  if (averaged) average->exchange();
  const auto bring_back = [&] {
    if (averaged) average->exchange();
    optimiser->training_weights();
    weights_are_whole = true;
  };
  try {
    use();
  } catch (...) {
    bring_back();
    throw;
  }
  bring_back();
}

double RunParts::rate_factor() const {
  return takes_schedule(options.optimizer_type) ? schedule->factor(schedule_step, options.learning_rate) : 1.0;
}

void RunParts::report_own_rates(RunStep& report) const {
  const bool instead = chooses_its_rate(options.optimizer_type, options.optimizer_args);
  if (!instead && optimiser_named(options.optimizer_type) != OptimiserKind::Prodigy) return;
  const std::vector<double> rates = optimiser->effective_rates();
  for (size_t g = 0; g < rates.size() && g < report.lr.size(); ++g)
    if (instead) report.lr[g].second = rates[g];
    else report.d_lr.emplace_back(report.lr[g].first, rates[g]);
}

bool RunParts::settle_end() {
  if (step < total_steps || drops || end_reason == RunEndReason::Nan) return !end_reason;
  end_reason.reset();
  return true;
}

void RunParts::end_after_error(const std::string& message, const Log& to, const std::vector<std::function<void()>>& saves) {
  if (!log) return;
  const bool worth_saving = step > first_step && weights_are_whole && !drops && end_reason != RunEndReason::Nan;
  for (const auto& save : saves) {
    if (!worth_saving) break;
    try {
      save();
    } catch (const std::exception& e) {
      to.warn("what was done cannot be saved: {}", e.what());
    }
  }
  try {
    log->end({.reason = RunEndReason::Error, .step = step, .message = message});
  } catch (const std::exception& e) {
    to.warn("{}", e.what());
  }
}

void RunParts::removed(const std::vector<std::filesystem::path>& files) {
  for (const auto& file : files)
    if (log) log->removed({.step = step, .file = file});
}

}  // namespace flux2
