#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace flux2 {

// A tensor that is trained. `value` is contiguous F32 or BF16 memory with a stream; the optimiser updates it in place.
struct TrainedTensor {
  std::string name;
  Tensor value;
};

struct ParameterGroup {
  std::string name;  // for logs: "unet"
  double learning_rate = 1e-4;
  std::vector<TrainedTensor> tensors;
};

// Changes parameters by their gradients. All arithmetic is F32; BF16 parameters are rounded stochastically.
class Optimiser {
 public:
  virtual ~Optimiser() = default;

  // gradients[i] belongs to the i-th tensor over all groups in order. Where it is undefined, that tensor stays as it is. `factor`
  // multiplies the learning rate of every group, `gradient_scale` every gradient (for clipping).
  virtual void step(std::span<const Tensor> gradients, double factor, double gradient_scale = 1.0) = 0;

  // A step tensor by tensor, for gradients that are freed one by one: begin_step, then step_one for each tensor that has a
  // gradient. The result is that of step(). Not every optimiser can do this: Prodigy looks at all gradients first.
  virtual bool steps_one_by_one() const { return true; }
  virtual void begin_step(double factor) = 0;
  virtual void step_one(size_t tensor, const Tensor& gradient, double gradient_scale = 1.0) = 0;

  // Schedule-free optimisers train other weights than those that should be sampled, saved or validated. Call evaluation_weights()
  // before and training_weights() after; the second restores the same bits. State is saved in between steps, with training
  // weights.
  virtual void evaluation_weights() {}
  virtual void training_weights() {}

  // State to save: tensors named "<parameter>/<slot>", and numbers. Loading restores the same bits. Slots that are missing or
  // have another shape or dtype are an error (BadFile) that names them.
  virtual std::vector<std::pair<std::string, Tensor>> slots() const = 0;
  virtual void load_slots(const std::vector<std::pair<std::string, Tensor>>& slots) = 0;
  virtual Json scalars() const = 0;
  virtual void load_scalars(const Json& scalars) = 0;

  virtual int64_t steps_done() const = 0;

  // The learning rates of the last step, one for each group: with Prodigy d · lr, with Adafactor's own steps theirs.
  virtual std::vector<double> effective_rates() const = 0;
};

// `type` is a name that optimiser_named() knows: "adamw8bit", "torch.optim.AdamW", …; `args` are words key=value with Python
// literals. Without groups, the call only checks these two. `seed` is that of stochastic rounding. Without `decay_all`, weight
// decay leaves out tensors with one axis.
std::unique_ptr<Optimiser> make_optimiser(const std::string& type, const std::vector<std::string>& args,
                                          std::vector<ParameterGroup> groups, uint64_t seed = 0, bool decay_all = true);

// √Σ g² over all gradients that are defined, added in F64: one kernel call for each stream.
double gradient_norm(std::span<const Tensor> gradients);

}  // namespace flux2
