#include "autograd/checkpoint.h"

#include <algorithm>

#include "autograd/grad.h"

namespace flux2 {

namespace {

// Copies of the inputs that cut the graph here: leaves if the original needs a gradient.
std::vector<Tensor> cut(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) leaves.push_back(wants_grad(x) ? parameter(x.detached()) : x.detached());
  return leaves;
}

}  // namespace

std::vector<Tensor> checkpoint(const Block& block, const std::vector<Tensor>& inputs, const CheckpointOptions& options) {
  const std::vector<Tensor> first = cut(inputs);
  std::vector<Tensor> outputs = block(first);

  // The weights inside the block are the leaves of its graph that are not our own. They become inputs of the recorded node, so
  // that their gradients are passed on.
  std::vector<Tensor> recorded = inputs;
  std::vector<bool> wanted;
  for (const Tensor& x : inputs) wanted.push_back(wants_grad(x));
  for (auto& leaf : leaves_of(outputs)) {
    bool ours = false;
    for (const Tensor& x : first) ours = ours || x.grad().node == leaf;
    if (!ours) recorded.push_back(Tensor().with_grad({leaf, 0}));
  }
  for (Tensor& y : outputs) y = y.detached();  // drops the graph of the first run

  if (std::none_of(recorded.begin(), recorded.end(), [](const Tensor& x) { return wants_grad(x); })) return outputs;

  std::vector<Tensor> kept;  // what the second run starts from: values only
  std::vector<std::function<Tensor()>> stored;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool elsewhere = options.store && i < options.stored;
    if (elsewhere) stored.push_back(options.store->keep(inputs[i].detached()));
    kept.push_back(elsewhere ? Tensor() : inputs[i].detached());
  }
  const size_t inputs_count = inputs.size();
  std::vector<GradEdge> weights;
  for (size_t i = inputs_count; i < recorded.size(); ++i) weights.push_back(recorded[i].grad());

  return record_many(
      "checkpoint", std::move(outputs), std::move(recorded),
      [=, hold = options.hold, second = options.second ? options.second : block](std::span<const Tensor> dy, GradSink& sink) {
        const std::shared_ptr<const void> held = hold ? hold() : nullptr;
        std::vector<Tensor> again;
        for (size_t i = 0; i < kept.size(); ++i) {
          const Tensor x = i < stored.size() ? stored[i]() : kept[i];
          again.push_back(wanted[i] ? parameter(x) : x);
        }
        const std::vector<Tensor> y = second(again);
        // A weight's gradient is passed on as soon as it is complete: those of a whole block need not exist
        // together.
        const auto pass_on = [&](const GradNode& leaf, const Tensor& gradient) {
          for (size_t i = 0; i < weights.size(); ++i)
            if (weights[i].node.get() == &leaf) return sink.add_last(inputs_count + i, gradient), true;
          return false;
        };
        const Gradients gradients = backward(y, dy, GraphUse::Release, pass_on);
        for (size_t i = 0; i < inputs_count; ++i)
          if (wanted[i] && gradients.contains(again[i])) sink.add(i, gradients[again[i]]);
      });
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& block, const Tensor& input) {
  return checkpoint([block](const std::vector<Tensor>& x) { return std::vector<Tensor>{block(x[0])}; }, {input})[0];
}

}  // namespace flux2
