// AdamW, Lion, AdEMAMix (each with plain or 8-bit state) and SGD: rules that look at one element at a time.
#include <cmath>

#include "train/optimiser/kernel_optimiser.h"

namespace flux2 {

namespace {

constexpr int64_t kSmallest8bit = 4096;  // elements of a tensor whose state is stored in 8 bits

float as_f32(double v) { return static_cast<float>(v); }
double bias(double beta, int64_t step) { return 1.0 - std::pow(beta, static_cast<double>(step)); }

// Options of PyTorch and bitsandbytes that change how fast they run or where state is kept, not the result.
void ignore_implementation(PythonOptions& options) {
  options.ignore({"fused", "foreach", "capturable", "differentiable", "is_paged", "use_triton"});
  check(!options.flag("amsgrad", false), "optimizer_args: amsgrad is not supported");
  check(!options.flag("maximize", false), "optimizer_args: maximize is not supported");
  check(options.flag("block_wise", true), "optimizer_args: block_wise=False is not supported");
  check(options.number("percentile_clipping", 100) == 100, "optimizer_args: percentile_clipping is not supported");
}

struct StateSize {
  bool eight_bits = false;
  int64_t smallest = kSmallest8bit;

  bool applies(int64_t count) const { return eight_bits && count >= smallest; }
};

StateSize read_state_size(PythonOptions& options, bool eight_bits) {
  StateSize size{eight_bits};
  if (eight_bits) size.smallest = options.integer("min_8bit_size", kSmallest8bit);
  return size;
}

class AdamW : public KernelOptimiser {
 public:
  AdamW(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all, bool eight_bits)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.999})),
        eps_(read_not_negative(options, "eps", 1e-8)),
        decay_(read_not_negative(options, "weight_decay", 0.01)),
        state_(read_state_size(options, eight_bits)) {
    for (Parameter& p : parameters_) {
      if (state_.applies(p.value.numel())) {
        p.rule = OptimiserRule::AdamW8bit;
        add_8bit_slots(p, 2);
      } else {
        p.rule = eight_bits ? OptimiserRule::AdamWDecayLast : OptimiserRule::AdamW;
        add_plain_slots(p, {"m", "v"});
      }
    }
  }

 private:
  void set_numbers(double) override {
    bias1_ = bias(betas_[0], step_);
    root_bias2_ = std::sqrt(bias(betas_[1], step_));
    numbers_ = {.beta1 = as_f32(betas_[0]),
                .beta2 = as_f32(betas_[1]),
                .rest1 = as_f32(1 - betas_[0]),
                .rest2 = as_f32(1 - betas_[1]),
                .root_bias2 = as_f32(root_bias2_),
                .eps = as_f32(state_.eight_bits ? eps_ * root_bias2_ : eps_)};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    const double rate = group_rate(p.group);
    entry.rate = as_f32(state_.eight_bits ? rate * root_bias2_ / bias1_ : rate / bias1_);
    entry.keep = as_f32(1 - rate * (decays(p) ? decay_ : 0));
  }

  std::vector<double> betas_;
  double eps_, decay_;
  StateSize state_;
  double bias1_ = 1, root_bias2_ = 1;
};

class Lion : public KernelOptimiser {
 public:
  Lion(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all, bool eight_bits)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.99})),
        decay_(read_not_negative(options, "weight_decay", 0)) {
    const StateSize state = read_state_size(options, eight_bits);
    for (Parameter& p : parameters_) {
      const bool small = !state.applies(p.value.numel());
      p.rule = small ? OptimiserRule::Lion : OptimiserRule::Lion8bit;
      if (small) add_plain_slots(p, {"m"});
      else add_8bit_slots(p, 1);
    }
  }

 private:
  void set_numbers(double) override {
    numbers_ = {
        .beta1 = as_f32(betas_[0]), .beta2 = as_f32(betas_[1]), .rest1 = as_f32(1 - betas_[0]), .rest2 = as_f32(1 - betas_[1])};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    entry.rate = as_f32(group_rate(p.group));
    entry.keep = as_f32(1 - group_rate(p.group) * (decays(p) ? decay_ : 0));
  }

  std::vector<double> betas_;
  double decay_;
};

// Adam with a second, slow average of the gradient.
class AdEmaMix : public KernelOptimiser {
 public:
  AdEmaMix(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all, bool eight_bits)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.999, 0.9999})),
        alpha_(read_not_negative(options, "alpha", 5)),
        eps_(read_not_negative(options, "eps", 1e-8)),
        decay_(read_not_negative(options, "weight_decay", 0.01)),
        alpha_steps_(options.optional_integer("t_alpha")),
        beta3_steps_(options.optional_integer("t_beta3")),
        eight_bits_(eight_bits) {
    for (const auto& steps : {alpha_steps_, beta3_steps_})
      check(!steps || *steps > 0, "optimizer_args: t_alpha and t_beta3 must be above 0, or None");
    check(!beta3_steps_ || (betas_[0] > 0 && betas_[2] > 0), "optimizer_args: t_beta3 needs betas above 0");
    const StateSize state = read_state_size(options, eight_bits);
    for (Parameter& p : parameters_) {
      const bool small = !state.applies(p.value.numel());
      p.rule = small ? OptimiserRule::AdEmaMix : OptimiserRule::AdEmaMix8bit;
      if (small) add_plain_slots(p, {"m1", "v", "m2"});
      else add_8bit_slots(p, 3);
    }
  }

 private:
  void set_numbers(double) override {
    const auto k = static_cast<double>(step_);
    const double alpha = alpha_steps_ ? std::min(k * alpha_ / static_cast<double>(*alpha_steps_), alpha_) : alpha_;
    double beta3 = betas_[2];
    if (beta3_steps_) {
      const double log1 = std::log(betas_[0]), log3 = std::log(betas_[2]), part = k / static_cast<double>(*beta3_steps_);
      // Beyond the end of the ramp the expression may change its sign.
      if (part < 1) beta3 = std::min(std::exp(log1 * log3 / ((1 - part) * log3 + part * log1)), betas_[2]);
    }
    numbers_ = {.beta1 = as_f32(betas_[0]),
                .beta2 = as_f32(betas_[1]),
                .beta3 = as_f32(beta3),
                .rest1 = as_f32(1 - betas_[0]),
                .rest2 = as_f32(1 - betas_[1]),
                .rest3 = as_f32(1 - beta3),
                .bias1 = as_f32(bias(betas_[0], step_)),
                .root_bias2 = as_f32(std::sqrt(bias(betas_[1], step_))),
                .eps = as_f32(eps_),
                .alpha = as_f32(alpha)};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    entry.rate = as_f32(group_rate(p.group));
    const double fade = group_rate(p.group) * (decays(p) ? decay_ : 0);
    entry.fade = as_f32(eight_bits_ ? 0 : fade);
    entry.keep = as_f32(eight_bits_ ? 1 - fade : 1);
  }

  std::vector<double> betas_;
  double alpha_, eps_, decay_;
  std::optional<int64_t> alpha_steps_, beta3_steps_;
  bool eight_bits_;
};

class Sgd : public KernelOptimiser {
 public:
  Sgd(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        momentum_(read_not_negative(options, "momentum", 0)),
        dampening_(options.number("dampening", 0)),
        decay_(read_not_negative(options, "weight_decay", 0)),
        nesterov_(options.flag("nesterov", false)) {
    check(!nesterov_ || (momentum_ > 0 && dampening_ == 0), "optimizer_args: nesterov needs momentum and no dampening");
    for (Parameter& p : parameters_) {
      p.rule = momentum_ > 0 ? OptimiserRule::SgdMomentum : OptimiserRule::Sgd;
      if (momentum_ > 0) add_plain_slots(p, {"m"});
    }
  }

 private:
  void set_numbers(double) override {  // the first gradient is not dampened
    numbers_ = {.beta1 = as_f32(momentum_), .rest1 = as_f32(step_ == 1 ? 1.0 : 1 - dampening_), .nesterov = nesterov_};
  }
  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    entry.rate = as_f32(group_rate(p.group));
    entry.decay = as_f32(decays(p) ? decay_ : 0);
  }

  double momentum_, dampening_, decay_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimiser> make_adamw(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all,
                                      bool eight_bits) {
  ignore_implementation(options);
  return std::make_unique<AdamW>(options, std::move(groups), seed, decay_all, eight_bits);
}

std::unique_ptr<Optimiser> make_lion(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all,
                                     bool eight_bits) {
  ignore_implementation(options);
  return std::make_unique<Lion>(options, std::move(groups), seed, decay_all, eight_bits);
}

std::unique_ptr<Optimiser> make_ademamix(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                         bool decay_all, bool eight_bits) {
  ignore_implementation(options);
  return std::make_unique<AdEmaMix>(options, std::move(groups), seed, decay_all, eight_bits);
}

std::unique_ptr<Optimiser> make_sgd(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all) {
  ignore_implementation(options);
  return std::make_unique<Sgd>(options, std::move(groups), seed, decay_all);
}

}  // namespace flux2
