#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {

// How the learning rate changes during a run. The names are those of the options.
struct LearningRateOptions {
  std::string lr_scheduler = "constant";
  std::string lr_warmup_steps = "0";  // a number of steps, a fraction of all steps below 1, or a percentage "10%"
  std::string lr_decay_steps = "0";   // the same
  int64_t total_steps = 0;            // optimiser steps of the run
  double lr_scheduler_num_cycles = 1;
  double lr_scheduler_power = 1;
  std::optional<int64_t> lr_scheduler_timescale;
  std::optional<double> lr_scheduler_min_lr_ratio;
  std::vector<std::string> lr_scheduler_args;  // words key=value: rex_alpha, rex_beta, step_rules
};

// The names of all schedules, as users write them.
const std::vector<std::string>& learning_rate_schedules();

// Steps from "100", "0.1" or "10%". `option` names the setting in errors.
int64_t steps_of_run(std::string_view text, int64_t total_steps, const std::string& option);

// The factor that multiplies the initial learning rate of a parameter group at each optimiser step.
class LearningRateSchedule {
 public:
  explicit LearningRateSchedule(const LearningRateOptions& options);

  // `step` counts finished optimiser steps: 0 for the first one, so a warm-up starts with 0. Only `polynomial` looks at the
  // initial learning rate: it ends at 1e-7 for every group.
  double factor(int64_t step, double initial_rate = 1.0) const;

  const std::string& name() const { return name_; }
  int64_t warmup_steps() const { return warmup_; }

 private:
  double after_warmup(int64_t step, double initial_rate) const;
  double rex(int64_t step) const;
  double stable_decay(int64_t step) const;

  std::string name_;
  int64_t total_ = 0, warmup_ = 0, decay_ = 0;
  double cycles_ = 1, power_ = 1, timescale_ = 10000, least_ = 0;
  double rex_alpha_ = 0.1, rex_beta_ = 0.9;
  std::vector<std::pair<int64_t, double>> rules_;  // until that step, this factor
  double last_rule_ = 1;
};

}  // namespace flux2
