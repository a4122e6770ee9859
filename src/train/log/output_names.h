#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

// The names of what a training run writes.
struct OutputNames {
  std::filesystem::path folder;  // output_dir
  std::string name;              // output_name: a plain name without slashes

  std::filesystem::path epoch_checkpoint(int64_t epoch) const;  // NAME-000002.safetensors, epochs from 1
  std::filesystem::path step_checkpoint(int64_t step) const;    // NAME-step00000100.safetensors
  std::filesystem::path last_checkpoint() const;                // NAME.safetensors
  std::filesystem::path epoch_state(int64_t epoch) const;       // NAME-000002-state
  std::filesystem::path step_state(int64_t step) const;         // NAME-step00000100-state
  std::filesystem::path last_state() const;                     // NAME-state
  std::filesystem::path log() const;                            // NAME.jsonl
  std::filesystem::path report() const;                         // report.html

  struct Sample {
    bool by_epoch = false;
    int64_t number = 0;  // the epoch or the step
    int64_t index = 0;   // of the prompt
    int64_t unix_time = 0;
    std::optional<uint64_t> seed;  // if the prompt has one
  };
  // sample/NAME_e000002_00_20261116041907_42_000.png; by step: NAME_000100_…
  std::filesystem::path sample(const Sample& sample) const;

  // Whether a name in the folder is one of a state of this run: NAME-state, NAME-000002-state, NAME-step00000100-state.
  bool is_state_name(const std::string& file_name) const;
};

// Throws InvalidArgument if `name` cannot be an output name.
void check_output_name(const std::string& name);

// YYYYmmddHHMMSS in local time.
std::string compact_time(int64_t unix_time);

}  // namespace flux2
