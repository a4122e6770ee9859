#include <algorithm>
#include <cmath>
#include <limits>

#include "train/optimiser/kernel_optimiser.h"

namespace flux2 {

namespace {

// Adam whose learning rate is d · lr, where d is a lower bound, found during training, of the distance from the start to a
// solution.
class Prodigy : public KernelOptimiser {
 public:
  Prodigy(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.999})),
        beta3_(options.optional_number("beta3").value_or(std::sqrt(betas_[1]))),
        eps_(read_positive(options, "eps", 1e-8)),
        decay_(read_not_negative(options, "weight_decay", 0)),
        d0_(read_positive(options, "d0", 1e-6)),
        d_coef_(read_positive(options, "d_coef", 1)),
        growth_(options.optional_number("growth_rate").value_or(std::numeric_limits<double>::infinity())),
        slice_(options.integer("slice_p", 1)),
        decoupled_(options.flag("decouple", true)),
        corrects_bias_(options.flag("use_bias_correction", false)),
        safeguard_(options.flag("safeguard_warmup", false)),
        d_(d0_),
        d_max_(d0_) {
    options.ignore({"fsdp_in_use"});
    check(beta3_ >= 0 && beta3_ < 1, "optimizer_args: beta3 must be at least 0 and below 1, not {}", beta3_);
    check(slice_ >= 1, "optimizer_args: slice_p is {}; use 1 or more", slice_);
    check(growth_ > 1, "optimizer_args: growth_rate is {}; use a number above 1", growth_);
    for (size_t i = 1; i < group_count(); ++i)
      check(initial_rate(i) == initial_rate(0),
            "Prodigy needs one learning rate for all parameters, but {} has {} and {} has {}; train without loraplus_lr_ratio",
            group_name(0), initial_rate(0), group_name(i), initial_rate(i));
    for (Parameter& p : parameters_) {
      const int64_t sampled = (p.value.numel() + slice_ - 1) / slice_;
      add_plain_slots(p, {"m", "v"});
      add_slot(p, 2, "s", DType::F32, {sampled});
      const Tensor start = add_slot(p, 3, "p0", DType::F32, {sampled});
      if (slice_ == 1) {
        start.copy_from(p.value.reshaped({sampled}));
        continue;
      }
      const std::vector<float> all = p.value.to_floats();
      std::vector<float> some;
      for (size_t i = 0; i < all.size(); i += static_cast<size_t>(slice_)) some.push_back(all[i]);
      start.stream().upload(start.raw(), some.data(), some.size() * sizeof(float));
    }
  }

  bool steps_one_by_one() const override { return false; }
  std::vector<double> effective_rates() const override {
    std::vector<double> rates;
    for (size_t i = 0; i < group_count(); ++i) rates.push_back(d_ * group_rate(i));
    return rates;
  }

 private:
  void set_numbers(double) override {
    const auto k = static_cast<double>(step_);
    const double correction = corrects_bias_ ? std::sqrt(1 - std::pow(betas_[1], k)) / (1 - std::pow(betas_[0], k)) : 1.0;
    rate_ = group_count() > 0 ? d_ * group_rate(0) * correction : 0;
    numbers_ = {.beta1 = static_cast<float>(betas_[0]),
                .beta2 = static_cast<float>(betas_[1]),
                .beta3 = static_cast<float>(beta3_),
                .rest1 = static_cast<float>(d_ * (1 - betas_[0])),
                .rest2 = static_cast<float>(d_ * d_ * (1 - betas_[1])),
                .s_rate = static_cast<float>(d_ / d0_ * (safeguard_ ? d_ : rate_)),
                .slice = slice_};
  }

  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    const double decay = decays(p) ? decay_ : 0;
    entry.rate = static_cast<float>(rate_);
    entry.fade = static_cast<float>(decoupled_ ? decay * rate_ : 0.0);
    entry.decay = static_cast<float>(decoupled_ ? 0.0 : decay);
  }

  void update(std::span<const Gradient> gradients) override {
    const auto [product, size] = run(gradients, OptimiserRule::ProdigySums);
    if (size == 0) return;  // nothing to learn from: d and the parameters stay
    if (group_rate(0) > 0) {
      numerator_ = beta3_ * numerator_ + d_ / d0_ * rate_ * product;
      const double estimate = d_coef_ * numerator_ / size;
      if (d_ == d0_) d_ = std::max(d_, estimate);
      d_max_ = std::max(d_max_, estimate);
      d_ = std::min(d_max_, d_ * growth_);
    }
    numbers_.eps = static_cast<float>(d_ * eps_);  // the new d here, the old one in the rate
    run(gradients, OptimiserRule::ProdigyUpdate);
  }

  void save_numbers(Json& out) const override {
    out["d"] = d_;
    out["d_max"] = d_max_;
    out["num"] = numerator_;
  }
  void load_numbers(const Json& in) override {
    read_member(in, "d", d_);
    read_member(in, "d_max", d_max_);
    read_member(in, "num", numerator_);
  }

  std::vector<double> betas_;
  double beta3_, eps_, decay_, d0_, d_coef_, growth_;
  int64_t slice_;
  bool decoupled_, corrects_bias_, safeguard_;
  double d_, d_max_, numerator_ = 0, rate_ = 0;
};

}  // namespace

std::unique_ptr<Optimiser> make_prodigy(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                        bool decay_all) {
  return std::make_unique<Prodigy>(options, std::move(groups), seed, decay_all);
}

}  // namespace flux2
