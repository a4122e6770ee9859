#include "train/log/retention.h"

#include "base/path_exists.h"
#include "train/log/state_folder.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::optional<int64_t> older_epoch(const std::optional<int64_t>& every, const std::optional<int64_t>& keep, int64_t epoch) {
  if (!every || !keep) return std::nullopt;
  const int64_t old = epoch - *every * *keep;
  return old >= 0 ? std::optional(old) : std::nullopt;
}

// With a save every 10 steps, of which the last 30 steps are kept, step 50 removes step 10.
std::optional<int64_t> older_step(const std::optional<int64_t>& every, const std::optional<int64_t>& keep, int64_t step) {
  if (!every || !keep || *every <= 0) return std::nullopt;
  const int64_t old = step - *keep - 1;
  return old >= 0 ? std::optional(old - old % *every) : std::nullopt;
}

std::optional<int64_t> above_zero(std::optional<int64_t> number) { return number && *number > 0 ? number : std::nullopt; }

// 0 counts as "not given", as in musubi-tuner.
const std::optional<int64_t>& state_rule(const std::optional<int64_t>& state, const std::optional<int64_t>& both) {
  return state && *state != 0 ? state : both;
}

// Together with its average (EMA) and the text encoders that were trained with them, in files of their own.
void prune_checkpoint(const fs::path& checkpoint, const Log& log, std::vector<fs::path>& removed) {
  for (const char* suffix : {"", "-ema", "-text_encoder", "-ema-text_encoder"}) {
    const fs::path file = checkpoint.parent_path() / (checkpoint.stem().string() + suffix + ".safetensors");
    std::error_code failure;
    if (fs::remove(file, failure)) removed.push_back(file);
    if (failure) log.warn("cannot remove the old checkpoint {}: {}", file.string(), failure.message());
  }
}

void prune_state(const fs::path& folder, const Log& log, std::vector<fs::path>& removed) {
  if (!is_folder(folder)) return;
  try {
    remove_state(folder);
    removed.push_back(folder);
  } catch (const Error& e) {
    log.warn("cannot remove the old state {}: {}", folder.string(), e.what());
  }
}

}  // namespace

std::optional<int64_t> epoch_to_remove(const Retention& rules, int64_t epoch) {
  return older_epoch(rules.every_n_epochs, rules.last_n_epochs, epoch);
}
std::optional<int64_t> step_to_remove(const Retention& rules, int64_t step) {
  return older_step(rules.every_n_steps, rules.last_n_steps, step);
}
std::optional<int64_t> epoch_state_to_remove(const Retention& rules, int64_t epoch) {
  return above_zero(older_epoch(rules.every_n_epochs, state_rule(rules.last_n_epochs_state, rules.last_n_epochs), epoch));
}
std::optional<int64_t> step_state_to_remove(const Retention& rules, int64_t step) {
  return above_zero(older_step(rules.every_n_steps, state_rule(rules.last_n_steps_state, rules.last_n_steps), step));
}

std::vector<fs::path> prune_after_epoch(const OutputNames& names, const Retention& rules, int64_t epoch, const Log& log) {
  std::vector<fs::path> removed;
  if (const auto old = epoch_to_remove(rules, epoch)) prune_checkpoint(names.epoch_checkpoint(*old), log, removed);
  if (const auto old = epoch_state_to_remove(rules, epoch)) prune_state(names.epoch_state(*old), log, removed);
  return removed;
}

std::vector<fs::path> prune_after_step(const OutputNames& names, const Retention& rules, int64_t step, const Log& log) {
  std::vector<fs::path> removed;
  if (const auto old = step_to_remove(rules, step)) prune_checkpoint(names.step_checkpoint(*old), log, removed);
  if (const auto old = step_state_to_remove(rules, step)) prune_state(names.step_state(*old), log, removed);
  return removed;
}

}  // namespace flux2
