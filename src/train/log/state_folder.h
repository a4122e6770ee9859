#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/log.h"
#include "train/log/checkpoint_file.h"
#include "train/log/output_names.h"
#include "train/log/train_state.h"

namespace flux2 {

// The tensors of a state. They may be on any device and of any plain dtype; the files keep the dtypes.
struct StateTensors {
  bool full_model = false;  // the weights are a model (model.safetensors), not an adapter (adapter.safetensors)
  NamedTensors weights;
  NamedTensors optimizer;  // "<parameter>/<slot>"
  NamedTensors ema;        // may be empty
};

// Writes a state under FOLDER.tmp, flushes every file and the folder, and renames it. A folder of that name is replaced. At no
// moment does a process that ends leave a folder that read_state() takes for complete. Throws CannotWrite before it writes
// anything if the disk has too little space. `on_write` is called before each action on the disk, for tests that end there.
void write_state(const std::filesystem::path& folder, const TrainState& state, const StateTensors& tensors,
                 const std::function<void(const char* action)>& on_write = {});

struct LoadedState {
  TrainState state;
  StateTensors tensors;  // host tensors that map the files, in the order of their names
};
LoadedState read_state(const std::filesystem::path& folder);      // throws NotFound, BadFile
TrainState read_state_json(const std::filesystem::path& folder);  // only state.json; checks that the folder is complete

// The newest complete state of the run, by the time it was saved.
std::optional<std::filesystem::path> newest_state(const OutputNames& names);

// Removes what killed processes left: *.tmp folders of this run's states. Returns what it removed.
std::vector<std::filesystem::path> remove_leftover_states(const OutputNames& names);

// Removes a state so that a process that ends in between leaves nothing that looks complete.
void remove_state(const std::filesystem::path& folder);

// If the folder is a state of musubi-tuner (pickles, which are not read): its weights, to start from. Else nothing.
std::optional<std::filesystem::path> musubi_state_weights(const std::filesystem::path& folder);

}  // namespace flux2
