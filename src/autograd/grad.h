#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// Collects the gradients of one recorded op's inputs while backward() runs.
class GradSink {
 public:
  using Offer = std::function<bool(size_t input, const Tensor& gradient)>;
  using TakeSum = std::function<Tensor(size_t input)>;
  explicit GradSink(const GradNode& node, Offer offer = {}, TakeSum take_sum = {})
      : node_(node), offer_(std::move(offer)), take_sum_(std::move(take_sum)) {}

  bool wants(size_t input) const;  // if false, there is no need to compute it
  void add(size_t input, Tensor gradient);
  // Like add, for the last reader of the input's value: a leaf's gradient that is complete with it is given away at once
  // (TakeGradient), so that the caller does not need to keep it.
  void add_last(size_t input, const Tensor& gradient);
  // Takes out what later ops have added up for that input; undefined if that is nothing. A kernel that adds its gradient to it,
  // in other memory, saves a pass over both; then add() is given the sum.
  Tensor take_sum(size_t input) const { return take_sum_ && wants(input) ? take_sum_(input) : Tensor(); }
  // Memory for the gradient of that input, with this shape and the dtype and stream of `like`. If the input is a slice of a
  // larger tensor, this is the corresponding (perhaps strided) slice of the larger gradient, which saves a copy. Otherwise it is
  // new memory.
  Tensor memory_for(size_t input, const Tensor& like, const Shape& shape) const;
  std::vector<std::pair<size_t, Tensor>> take() { return std::move(gradients_); }

 private:
  const GradNode& node_;
  Offer offer_;
  TakeSum take_sum_;
  std::vector<std::pair<size_t, Tensor>> gradients_;
};

// Given the gradients of an op's outputs (undefined where none arrived), adds those of its inputs to the sink.
using Backward = std::function<void(std::span<const Tensor> dy, GradSink& sink)>;

// The preferred memory for the gradient of an output, or undefined: see GradSink::memory_for. Each part is handed out once.
using GradMemory = std::function<Tensor(const GradNode& node, int output, const Tensor& like)>;

// One recorded op, or a leaf: a tensor whose gradient the caller asked for.
struct GradNode {
  std::string op;                // for messages
  std::vector<GradEdge> inputs;  // empty for inputs that need no gradient
  Backward backward;             // none for a leaf
  GradMemory output_memory;      // none for most
  int outputs = 1;
  uint64_t sequence = 0;  // larger than that of any input
  bool released = false;  // the tensors that its gradient needs were freed

  ~GradNode();  // releases long chains without deep recursion
};

inline bool wants_grad(const Tensor& x) { return x.grad().node != nullptr; }
template <class... More>
bool wants_grad(const Tensor& x, const More&... more) {
  return wants_grad(x) || wants_grad(more...);
}

// x as a leaf: gradients() will hold its gradient.
Tensor parameter(const Tensor& x);

// Records y as the result of `op` on `inputs`. Keeps nothing if no input needs a gradient.
Tensor record(const char* op, Tensor y, std::initializer_list<Tensor> inputs,
              std::function<void(const Tensor& dy, GradSink& sink)> backward);
std::vector<Tensor> record_many(const char* op, std::vector<Tensor> y, std::vector<Tensor> inputs, Backward backward);

// Gradients of leaves.
class Gradients {
 public:
  bool contains(const Tensor& leaf) const;
  const Tensor& operator[](const Tensor& leaf) const;  // throws for a leaf the loss does not depend on

  std::unordered_map<const GradNode*, Tensor> by_node;
};

enum class GraphUse {
  Keep,     // the graph can be differentiated again
  Release,  // every op frees its tensors as soon as its gradient is computed
};

// Is given the gradient of a leaf as soon as it is complete. By then no op that is still to be differentiated reads the leaf's
// value, so it may be changed. If it returns true, the gradient is not part of Gradients and its memory is freed.
using TakeGradient = std::function<bool(const GradNode& leaf, const Tensor& gradient)>;

// Differentiates a scalar, or several tensors whose gradients are given.
Gradients backward(const Tensor& loss, GraphUse use = GraphUse::Keep);
Gradients backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients, GraphUse use = GraphUse::Keep,
                   const TakeGradient& take = {});

// Like GradSink::memory_for, for a node that passes on the memory of its own gradient.
Tensor gradient_memory(const GradEdge& edge, const Tensor& like, const Shape& shape);

// The leaves that `outputs` depend on.
std::vector<std::shared_ptr<GradNode>> leaves_of(std::span<const Tensor> outputs);

}  // namespace flux2
