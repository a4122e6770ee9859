#include "train/optimiser/learning_rate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "train/optimiser/python_literals.h"

namespace flux2 {

namespace {

constexpr double kPolynomialEnd = 1e-7;

std::optional<double> plain_number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

double half_cosine(double turns) { return 0.5 * (1.0 + std::cos(2.0 * std::numbers::pi * turns)); }

double at_least_1(int64_t steps) { return static_cast<double>(std::max<int64_t>(1, steps)); }

struct StepRules {
  std::vector<std::pair<int64_t, double>> until;
  double last = 1;
};

// "1:10,0.1:20,0.01" → factor 1 before step 10, 0.1 before step 20, then 0.01.
StepRules read_step_rules(const std::string& text) {
  const auto number = [&](std::string_view part) {
    const auto value = plain_number(trimmed(part));
    check(value.has_value(),
          "step_rules \"{}\" cannot be read; write factor:step pairs and a last factor, as in 1:10,0.1:20,0.01", printable(text));
    return value.value_or(0);
  };
  StepRules rules;
  std::string_view rest = text;
  for (size_t comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
    const std::string_view rule = rest.substr(0, comma);
    const size_t colon = std::min(rule.find(':'), rule.size());
    const double value = number(rule.substr(0, colon)), step = number(rule.substr(std::min(colon + 1, rule.size())));
    check(step == std::floor(step) && std::abs(step) < 1e15, "step_rules: {} is not a number of steps", step);
    rules.until.emplace_back(static_cast<int64_t>(step), value);
    rest.remove_prefix(comma + 1);
  }
  rules.last = number(rest);
  std::sort(rules.until.begin(), rules.until.end());
  return rules;
}

}  // namespace

const std::vector<std::string>& learning_rate_schedules() {
  static const std::vector<std::string> kNames = {"constant",     "constant_with_warmup", "linear",
                                                  "cosine",       "cosine_with_restarts", "polynomial",
                                                  "inverse_sqrt", "cosine_with_min_lr",   "warmup_stable_decay",
                                                  "rex",          "piecewise_constant",   "adafactor"};
  return kNames;
}

int64_t steps_of_run(std::string_view text, int64_t total_steps, const std::string& option) {
  text = trimmed(text);
  const bool percent = text.ends_with('%');
  const auto value = plain_number(percent ? trimmed(text.substr(0, text.size() - 1)) : text);
  const bool fraction = value && (percent ? *value <= 100.0 : *value < 1.0);
  check(value && *value >= 0 && (fraction || (!percent && *value == std::floor(*value) && *value < 1e15)),
        "{} is \"{}\"; use a number of steps, a fraction below 1, or a percentage such as 10%", option, printable(text));
  if (!fraction) return static_cast<int64_t>(*value);
  // A small allowance: 29 % of 100 steps are 29, not 28.999…
  return static_cast<int64_t>(std::floor((percent ? *value / 100.0 : *value) * static_cast<double>(total_steps) + 1e-6));
}

LearningRateSchedule::LearningRateSchedule(const LearningRateOptions& o)
    : name_(o.lr_scheduler), total_(o.total_steps), cycles_(o.lr_scheduler_num_cycles), power_(o.lr_scheduler_power) {
  const auto& names = learning_rate_schedules();
  if (std::find(names.begin(), names.end(), name_) == names.end()) {
    const std::string near = nearest_word(name_, names);
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("lr_scheduler: \"{}\" is not one of: {}", printable(name_), fmt::join(names, ", ")),
                near.empty() ? Hint() : Hint("did you mean {0}?", {set_option("lr_scheduler", near)}));
  }
  check(total_ >= 0, "a run cannot have {} steps", total_);
  warmup_ = steps_of_run(o.lr_warmup_steps, total_, "lr_warmup_steps");
  decay_ = steps_of_run(o.lr_decay_steps, total_, "lr_decay_steps");
  if (name_ == "constant" && warmup_ != 0)
    throw Error(
        ErrorCode::InvalidArgument, "the schedule \"constant\" has no warm-up",
        Hint("use {0}, or leave out {1}", {set_option("lr_scheduler", "constant_with_warmup"), unset_option("lr_warmup_steps")}));
  if (o.lr_scheduler_min_lr_ratio) {
    least_ = *o.lr_scheduler_min_lr_ratio;
    check(least_ >= 0 && least_ <= 1, "lr_scheduler_min_lr_ratio is {}; use 0 to 1", least_);
  } else if (name_ == "rex") {
    least_ = 0.01;
  } else if (name_ == "cosine_with_min_lr") {
    throw Error(ErrorCode::InvalidArgument, "the schedule \"cosine_with_min_lr\" needs its smallest factor",
                Hint("set {0}", {set_option("lr_scheduler_min_lr_ratio", "0.1")}));
  }
  timescale_ = static_cast<double>(o.lr_scheduler_timescale.value_or(warmup_ > 0 ? warmup_ : 10000));
  check(timescale_ > 0, "lr_scheduler_timescale is {}; use 1 or more", timescale_);
  check(name_ != "warmup_stable_decay" || warmup_ + decay_ <= total_,
        "{} steps of warm-up and {} of decay do not fit into {} steps", warmup_, decay_, total_);
  check(name_ != "cosine_with_restarts" || cycles_ >= 1, "lr_scheduler_num_cycles is {}; use 1 or more", cycles_);

  PythonOptions args("lr_scheduler_args", o.lr_scheduler_args);
  if (name_ == "rex") {
    rex_alpha_ = args.number("rex_alpha", rex_alpha_);
    rex_beta_ = args.number("rex_beta", rex_beta_);
    check(rex_alpha_ > 0 && rex_beta_ >= 0, "rex_alpha is {} and rex_beta {}; alpha must be above 0, beta not below 0",
          rex_alpha_, rex_beta_);
  }
  if (name_ == "piecewise_constant") {
    check(args.has("step_rules"),
          "the schedule \"piecewise_constant\" needs step_rules in lr_scheduler_args, as in "
          "step_rules=1:10,0.1:20,0.01");
    const StepRules rules = read_step_rules(args.text("step_rules", ""));
    rules_ = rules.until;
    last_rule_ = rules.last;
  }
  args.finish();
}

double LearningRateSchedule::factor(int64_t step, double initial_rate) const {
  if (name_ == "constant" || name_ == "adafactor") return 1.0;
  if (name_ == "piecewise_constant") {
    for (const auto& [until, value] : rules_)
      if (step < until) return value;
    return last_rule_;
  }
  if (name_ == "rex") return rex(step);
  if (step < warmup_) {
    const double progress = static_cast<double>(step) / at_least_1(warmup_);
    return name_ == "warmup_stable_decay" ? progress * (1.0 - least_) + least_ : progress;
  }
  return after_warmup(step, initial_rate);
}

double LearningRateSchedule::after_warmup(int64_t step, double initial_rate) const {
  const double x = static_cast<double>(step - warmup_) / at_least_1(total_ - warmup_);
  if (name_ == "linear") return std::max(0.0, static_cast<double>(total_ - step) / at_least_1(total_ - warmup_));
  if (name_ == "cosine") return std::max(0.0, half_cosine(0.5 * x));
  if (name_ == "cosine_with_restarts") return x >= 1.0 ? 0.0 : std::max(0.0, half_cosine(0.5 * std::fmod(cycles_ * x, 1.0)));
  if (name_ == "cosine_with_min_lr") return std::max(0.0, half_cosine(0.5 * cycles_ * x) * (1.0 - least_) + least_);
  if (name_ == "inverse_sqrt") return 1.0 / std::sqrt((static_cast<double>(step - warmup_) + timescale_) / timescale_);
  if (name_ == "warmup_stable_decay") return stable_decay(step);
  if (name_ == "polynomial") {
    check(initial_rate > kPolynomialEnd, "the schedule \"polynomial\" needs a learning rate above {}", kPolynomialEnd);
    if (step > total_) return kPolynomialEnd / initial_rate;
    return ((initial_rate - kPolynomialEnd) * std::pow(1.0 - x, power_) + kPolynomialEnd) / initial_rate;
  }
  return 1.0;  // constant_with_warmup
}

double LearningRateSchedule::stable_decay(int64_t step) const {
  const int64_t begin = total_ - decay_;
  if (step < begin) return 1.0;
  if (step >= total_) return least_;
  const double x = static_cast<double>(step - begin) / at_least_1(decay_);
  return std::max(0.0, half_cosine(0.5 * cycles_ * x) * (1.0 - least_) + least_);
}

// Reflected exponential: slow at first, then fast.
double LearningRateSchedule::rex(int64_t step) const {
  if (step < warmup_)
    return step <= 1 ? least_ : least_ + (1.0 - least_) * static_cast<double>(step - 1) / static_cast<double>(warmup_ - 1);
  const double steps = at_least_1(total_ - warmup_);
  const double z = std::max(0.0, (steps - static_cast<double>(step - warmup_)) / steps);
  return least_ + (1.0 - least_) * z / (rex_alpha_ + rex_beta_ * z);
}

}  // namespace flux2
