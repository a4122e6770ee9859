// Adafactor and CAME: the second moment of a matrix is kept as the means of its rows and of its columns.
#include <cmath>

#include "train/optimiser/kernel_optimiser.h"

namespace flux2 {

namespace {

class Adafactor : public KernelOptimiser {
 public:
  Adafactor(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        eps_(options.numbers("eps", {1e-30, 1e-3})),
        clip_(read_positive(options, "clip_threshold", 1)),
        decay_rate_(options.number("decay_rate", -0.8)),
        beta1_(options.optional_number("beta1")),
        decay_(read_not_negative(options, "weight_decay", 0)),
        scales_(options.flag("scale_parameter", true)),
        warmup_init_(options.flag("warmup_init", false)),
        relative_(options.flag("relative_step", true) || warmup_init_) {
    check(decay_rate_ <= 0, "optimizer_args: decay_rate is {}; use 0 or less", decay_rate_);
    check(!beta1_ || (*beta1_ >= 0 && *beta1_ < 1), "optimizer_args: beta1 must be at least 0 and below 1, or None");
    for (Parameter& p : parameters_) {
      p.rule = OptimiserRule::Adafactor;
      if (p.entry.factored) add_factored_slots(p, 0, "row", "col");
      else add_slot(p, 0, "v", DType::F32, p.value.shape());
      if (beta1_) add_slot(p, 2, "m", DType::F32, p.value.shape());
    }
  }

  std::vector<double> effective_rates() const override {
    return relative_ ? std::vector<double>(group_count(), own_rate_) : KernelOptimiser::effective_rates();
  }

 private:
  void set_numbers(double) override {
    const auto k = static_cast<double>(step_);
    const double rest = std::pow(k, decay_rate_);
    own_rate_ = std::min(warmup_init_ ? 1e-6 * k : 1e-2, 1 / std::sqrt(k));
    numbers_ = {.beta1 = static_cast<float>(beta1_.value_or(0)),
                .beta2 = static_cast<float>(1 - rest),
                .rest1 = static_cast<float>(1 - beta1_.value_or(0)),
                .rest2 = static_cast<float>(rest),
                .eps = static_cast<float>(eps_[0]),
                .eps2 = static_cast<float>(eps_[1]),
                .clip = static_cast<float>(clip_),
                .momentum = beta1_.has_value(),
                .scale_parameter = scales_};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    entry.rate = static_cast<float>(relative_ ? own_rate_ : group_rate(p.group));
    entry.decay = static_cast<float>(decays(p) ? decay_ : 0);
  }

  std::vector<double> eps_;
  double clip_, decay_rate_;
  std::optional<double> beta1_;
  double decay_;
  bool scales_, warmup_init_, relative_;
  double own_rate_ = 0;
};

class Came : public KernelOptimiser {
 public:
  Came(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.999, 0.9999})),
        eps_(options.numbers("eps", {1e-30, 1e-16})),
        clip_(read_positive(options, "clip_threshold", 1)),
        decay_(read_not_negative(options, "weight_decay", 0)) {
    for (Parameter& p : parameters_) {
      p.rule = OptimiserRule::Came;
      if (p.entry.factored) add_factored_slots(p, 0, "row", "col");
      else add_slot(p, 0, "v", DType::F32, p.value.shape());
      add_slot(p, 2, "m", DType::F32, p.value.shape());
      if (p.entry.factored) add_factored_slots(p, 3, "residual_row", "residual_col");
    }
  }

 private:
  void set_numbers(double) override {
    numbers_ = {.beta1 = static_cast<float>(betas_[0]),
                .beta2 = static_cast<float>(betas_[1]),
                .beta3 = static_cast<float>(betas_[2]),
                .rest1 = static_cast<float>(1 - betas_[0]),
                .rest2 = static_cast<float>(1 - betas_[1]),
                .rest3 = static_cast<float>(1 - betas_[2]),
                .eps = static_cast<float>(eps_[0]),
                .eps2 = static_cast<float>(eps_[1]),
                .clip = static_cast<float>(clip_)};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    entry.rate = static_cast<float>(group_rate(p.group));
    entry.fade = static_cast<float>(group_rate(p.group) * (decays(p) ? decay_ : 0));
  }

  std::vector<double> betas_, eps_;
  double clip_, decay_;
};

}  // namespace

std::unique_ptr<Optimiser> make_adafactor(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                          bool decay_all) {
  return std::make_unique<Adafactor>(options, std::move(groups), seed, decay_all);
}

std::unique_ptr<Optimiser> make_came(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all) {
  return std::make_unique<Came>(options, std::move(groups), seed, decay_all);
}

}  // namespace flux2
