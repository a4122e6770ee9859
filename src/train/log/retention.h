#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/log.h"
#include "train/log/output_names.h"

namespace flux2 {

// How often training saves, and which older files it removes. Each save removes at most the one file whose number these formulas
// give (with NAME-ema.safetensors beside it), and nothing else that is older.
struct Retention {
  std::optional<int64_t> every_n_epochs, every_n_steps;            // N
  std::optional<int64_t> last_n_epochs, last_n_steps;              // k; empty: all are kept
  std::optional<int64_t> last_n_epochs_state, last_n_steps_state;  // of states, if another number
};

// The epoch e − N·k, or the step s − k − 1 rounded down to a multiple of N. Empty: nothing is removed.
std::optional<int64_t> epoch_to_remove(const Retention& rules, int64_t epoch);
std::optional<int64_t> step_to_remove(const Retention& rules, int64_t step);
std::optional<int64_t> epoch_state_to_remove(const Retention& rules, int64_t epoch);
std::optional<int64_t> step_state_to_remove(const Retention& rules, int64_t step);

// Call these after the new file is complete. They return what they removed. A file that cannot be removed gives a warning.
std::vector<std::filesystem::path> prune_after_epoch(const OutputNames& names, const Retention& rules, int64_t epoch,
                                                     const Log& log);
std::vector<std::filesystem::path> prune_after_step(const OutputNames& names, const Retention& rules, int64_t step,
                                                    const Log& log);

}  // namespace flux2
