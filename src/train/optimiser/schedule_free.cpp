#include <algorithm>
#include <cmath>

#include "train/optimiser/kernel_optimiser.h"

namespace flux2 {

namespace {

// AdamW that averages its weights instead of lowering its learning rate. Gradients are taken at y, a point between z, which the
// gradients move, and the average x. The parameters hold y during training; x follows from y and z.
class ScheduleFree : public KernelOptimiser {
 public:
  ScheduleFree(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
      : KernelOptimiser(std::move(groups), seed, decay_all),
        betas_(read_betas(options, {0.9, 0.999})),
        eps_(read_not_negative(options, "eps", 1e-8)),
        decay_(read_not_negative(options, "weight_decay", 0)),
        warmup_(read_not_negative(options, "warmup_steps", 0)),
        r_(options.number("r", 0)),
        power_(options.number("weight_lr_power", 2)),
        groups_(group_count()) {
    options.ignore({"foreach"});
    check(betas_[0] > 0, "optimizer_args: a schedule-free optimiser needs a first beta above 0");
    for (Parameter& p : parameters_) {
      p.rule = OptimiserRule::ScheduleFree;
      add_plain_slots(p, {"z", "v"});
      p.slots[0].second.copy_from(p.value);
    }
  }

  // The average is written over the parameters. They are kept aside, since y would not come back to the last bit from x and z.
  void evaluation_weights() override {
    if (!kept_.empty() || parameters_.empty()) return;
    std::vector<Gradient> all;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& value = parameters_[i].value;
      kept_.emplace_back(static_cast<size_t>(value.bytes()));
      value.stream().download(kept_.back().data(), value.raw(), kept_.back().size());
      all.push_back({i, {}});
    }
    run(all, OptimiserRule::Interpolate);
  }

  void training_weights() override {
    for (size_t i = 0; i < kept_.size(); ++i)
      parameters_[i].value.stream().upload(parameters_[i].value.raw(), kept_[i].data(), kept_[i].size());
    kept_.clear();
  }

  std::vector<double> effective_rates() const override {
    std::vector<double> rates;
    for (const Group& group : groups_) rates.push_back(group.rate);
    return rates;
  }

 private:
  struct Group {
    double rate = 0, rate_max = -1, weight_sum = 0, mix = 0;
  };

  void set_numbers(double) override {
    require(kept_.empty(), "a step while the evaluation weights are in place");
    const auto k = static_cast<double>(step_);
    const double ramp = k <= warmup_ ? k / warmup_ : 1.0;
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      group.rate = group_rate(i) * ramp;
      group.rate_max = std::max(group.rate, group.rate_max);
      const double weight = std::pow(k, r_) * std::pow(group.rate_max, power_);
      group.weight_sum += weight;
      group.mix = group.weight_sum > 0 ? weight / group.weight_sum : 0;
    }
    numbers_ = {.beta2 = static_cast<float>(betas_[1]),
                .rest2 = static_cast<float>(1 - betas_[1]),
                .root_bias2 = static_cast<float>(std::sqrt(1 - std::pow(betas_[1], k))),
                .eps = static_cast<float>(eps_)};
  }

  void set_rates(const Parameter& p, OptimiserTensor& entry) const override {
    const Group& group = groups_[p.group];
    entry.mix = static_cast<float>(kept_.empty() ? group.mix : 1 - 1 / betas_[0]);
    entry.rate = static_cast<float>(group.rate * (betas_[0] * (1 - group.mix) - 1));
    entry.z_rate = static_cast<float>(group.rate);
    entry.decay = static_cast<float>(decays(p) ? decay_ : 0);
  }

  void save_numbers(Json& out) const override {
    for (const Group& group : groups_) {
      out["lr_max"].push_back(group.rate_max);
      out["weight_sum"].push_back(group.weight_sum);
    }
  }
  void load_numbers(const Json& in) override {
    const auto read = [&](const char* key, double Group::*member) {
      const auto found = in.find(key);
      const bool fits = found != in.end() && found->is_array() && found->size() == groups_.size() &&
                        std::all_of(found->begin(), found->end(), [](const Json& v) { return v.is_number(); });
      if (!fits) fail(ErrorCode::BadFile, "{} of the saved optimiser state does not have a number for each parameter group", key);
      for (size_t i = 0; i < groups_.size(); ++i) groups_[i].*member = (*found)[i].get<double>();
    };
    read("lr_max", &Group::rate_max);
    read("weight_sum", &Group::weight_sum);
  }

  std::vector<double> betas_;
  double eps_, decay_, warmup_, r_, power_;
  std::vector<Group> groups_;
  std::vector<std::vector<std::byte>> kept_;
};

}  // namespace

std::unique_ptr<Optimiser> make_schedule_free(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                              bool decay_all) {
  return std::make_unique<ScheduleFree>(options, std::move(groups), seed, decay_all);
}

}  // namespace flux2
