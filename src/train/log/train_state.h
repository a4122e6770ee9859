#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"

namespace flux2 {

// Everything about a run that is not a tensor: the content of state.json.
struct TrainState {
  static constexpr int64_t kVersion = 1;

  std::string program;  // that wrote it
  int64_t step = 0, epoch = 0, micro_in_epoch = 0, samples_seen = 0;
  int64_t ranks = 1;  // processes; each of them counts its own batches in micro_in_epoch. 0: an older program did not say it
  uint64_t seed = 0;
  Json options = Json::object();  // every resolved option
  std::string dataset_hash;
  Json base;  // what the run trains from, as {"model": …, "quant": …}; null in states of older programs
  struct Scheduler {
    std::string name;
    int64_t step = 0;
  } scheduler;
  struct Scaler {
    double scale = 0;
    int64_t good_steps = 0;
  };
  std::optional<Scaler> scaler;
  struct Optimizer {
    std::string name;
    Json args = Json::object();
    int64_t step = 0;
    std::map<std::string, double> scalars;  // d, d_max, num, lr_max, weight_sum …; kept bit for bit, infinities too
  } optimizer;
  std::vector<double> loss_window;
  double elapsed_s = 0;
  std::string saved_at;         // ISO 8601, UTC, set by write_state()
  Json extra = Json::object();  // what a caller wants to keep besides
};

Json to_json(const TrainState& state);
TrainState train_state_from(const Json& json);  // throws BadFile, or Incompatible for another version

// Whether a run may go on with another value of this option: limits, cadence, logging, memory, device.
bool may_differ_on_resume(std::string_view option);

// Compares the options and the base model of a run that is resumed with those of its state. A difference that is not allowed
// throws Incompatible and names option, old and new value; with `force` it is a warning. Another dataset is a warning; the result
// is then true: the epoch's order starts again from the same seed.
struct ResumeCheck {
  const Json& options;              // of this run
  const std::string& dataset_hash;  // of this run
  bool force = false;
  const Log& log;
  Json base = nullptr;  // of this run; null: not compared
};
bool check_resume(const TrainState& saved, const ResumeCheck& check);

}  // namespace flux2
