#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/optimiser_kernels.h"
#include "train/optimiser/optimiser.h"
#include "train/optimiser/python_literals.h"

namespace flux2 {

// What all optimisers share: the parameters with their states, and the call of the device's kernel for all of them. A subclass
// allocates the states and computes the numbers of each step in F64.
class KernelOptimiser : public Optimiser {
 public:
  KernelOptimiser(std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all);

  void step(std::span<const Tensor> gradients, double factor, double gradient_scale) final;
  void begin_step(double factor) final;
  void step_one(size_t tensor, const Tensor& gradient, double gradient_scale) final;
  std::vector<std::pair<std::string, Tensor>> slots() const final;
  void load_slots(const std::vector<std::pair<std::string, Tensor>>& slots) final;
  Json scalars() const final;
  void load_scalars(const Json& scalars) final;
  int64_t steps_done() const final { return step_; }
  std::vector<double> effective_rates() const override;

 protected:
  struct Parameter {
    std::string name;
    Tensor value;
    size_t group = 0;
    OptimiserRule rule = OptimiserRule::AdamW;
    std::vector<std::pair<std::string, Tensor>> slots;
    OptimiserTensor entry;  // what the kernel gets, without the gradient and the numbers of the step
  };
  struct Gradient {
    size_t tensor = 0;
    Tensor value;
  };

  struct RuleSums {
    double first = 0, second = 0;
  };

  // Allocates a state of zeros as state[at] of the parameter.
  Tensor add_slot(Parameter& parameter, int at, const std::string& name, DType dtype, const Shape& shape);
  void add_plain_slots(Parameter& parameter, const std::vector<std::string>& names);  // F32, in the parameter's shape
  // Codes for state1, state2, … and their block maxima.
  void add_8bit_slots(Parameter& parameter, int count);
  // Row and column means as state[at], state[at + 1]; matrices only.
  void add_factored_slots(Parameter& parameter, int at, const std::string& row, const std::string& column);

  // Computes numbers_ (and whatever set_rates() needs) for step number step_ = 1, 2, …
  virtual void set_numbers(double factor) = 0;
  // Sets the numbers that depend on the parameter group.
  virtual void set_rates(const Parameter& parameter, OptimiserTensor& entry) const = 0;
  virtual void update(std::span<const Gradient> gradients);
  virtual void save_numbers(Json&) const {}
  virtual void load_numbers(const Json&) {}

  // Runs the rule of each parameter, or `rule` for all parameters, with one kernel call for each stream and rule. Returns both
  // sums.
  RuleSums run(std::span<const Gradient> gradients);
  RuleSums run(std::span<const Gradient> gradients, OptimiserRule rule);

  double group_rate(size_t group) const { return groups_[group].second * factor_; }
  bool decays(const Parameter& parameter) const { return decay_all_ || parameter.value.rank() > 1; }
  size_t group_count() const { return groups_.size(); }
  const std::string& group_name(size_t group) const { return groups_[group].first; }
  double initial_rate(size_t group) const { return groups_[group].second; }

  std::vector<Parameter> parameters_;
  RuleNumbers numbers_;
  int64_t step_ = 0;
  double factor_ = 1;

 private:
  struct CodeBooks {
    Stream* stream = nullptr;
    Tensor with_sign, without_sign;
  };
  const CodeBooks& books_on(Stream& stream);
  Gradient checked(size_t tensor, const Tensor& gradient) const;
  RuleSums run_by_rule(std::span<const Gradient> gradients, const OptimiserRule* rule);
  RuleSums call(OptimiserRule rule, Stream& stream, std::span<const OptimiserTensor> entries);

  std::vector<std::pair<std::string, double>> groups_;  // name and initial learning rate
  std::vector<CodeBooks> books_;
  uint64_t seed_;
  bool decay_all_;
};

// Reads the option "betas" and checks that each value lies in [0, 1).
std::vector<double> read_betas(PythonOptions& options, std::vector<double> otherwise);
double read_positive(PythonOptions& options, const std::string& key, double otherwise);      // above 0
double read_not_negative(PythonOptions& options, const std::string& key, double otherwise);  // 0 or more

// The optimisers; each reads its own options.
std::unique_ptr<Optimiser> make_adamw(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all,
                                      bool eight_bits);
std::unique_ptr<Optimiser> make_lion(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all,
                                     bool eight_bits);
std::unique_ptr<Optimiser> make_ademamix(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                         bool decay_all, bool eight_bits);
std::unique_ptr<Optimiser> make_sgd(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all);
std::unique_ptr<Optimiser> make_prodigy(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                        bool decay_all);
std::unique_ptr<Optimiser> make_schedule_free(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                              bool decay_all);
std::unique_ptr<Optimiser> make_adafactor(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed,
                                          bool decay_all);
std::unique_ptr<Optimiser> make_came(PythonOptions& options, std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all);

}  // namespace flux2
