#include "autograd/grad.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace flux2 {

bool GradSink::wants(size_t input) const { return node_.inputs[input].node != nullptr; }

void GradSink::add(size_t input, Tensor gradient) {
  if (wants(input)) gradients_.emplace_back(input, std::move(gradient));
}

void GradSink::add_last(size_t input, const Tensor& gradient) {
  if (wants(input) && !(offer_ && offer_(input, gradient))) gradients_.emplace_back(input, gradient);
}

Tensor GradSink::memory_for(size_t input, const Tensor& like, const Shape& shape) const {
  return gradient_memory(node_.inputs[input], like, shape);
}

Tensor gradient_memory(const GradEdge& edge, const Tensor& like, const Shape& shape) {
  if (edge.node && edge.node->output_memory)
    if (Tensor part = edge.node->output_memory(*edge.node, edge.output, like); part.defined()) return part;
  return Tensor::like(like, shape);
}

GradNode::~GradNode() {
  // A model is a chain of thousands of nodes, each owning the next; take them apart in a loop. A node's closure
  // holds tensors, whose edges may be the last owners of further nodes: those few levels unwind by themselves.
  std::vector<std::shared_ptr<GradNode>> pending;
  const auto take = [&](GradNode& node) {
    for (auto& edge : node.inputs)
      if (edge.node) pending.push_back(std::move(edge.node));
    node.inputs.clear();
  };
  backward = nullptr;
  output_memory = nullptr;
  take(*this);
  while (!pending.empty()) {
    auto node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() == 1) take(*node);
  }
}

Tensor parameter(const Tensor& x) {
  auto node = std::make_shared<GradNode>();
  node->op = "parameter";
  return x.with_grad({node, 0});
}

std::vector<Tensor> record_many(const char* op, std::vector<Tensor> y, std::vector<Tensor> inputs, Backward backward) {
  bool wanted = false;
  for (const Tensor& x : inputs) wanted = wanted || wants_grad(x);
  if (!wanted) return y;
  auto node = std::make_shared<GradNode>();
  node->op = op;
  node->outputs = static_cast<int>(y.size());
  node->sequence = y[0].stream().next_sequence();
  for (const Tensor& x : inputs) {
    node->inputs.push_back(x.grad());
    if (wants_grad(x)) node->sequence = std::max(node->sequence, x.grad().node->sequence + 1);
  }
  node->backward = std::move(backward);
  for (size_t i = 0; i < y.size(); ++i) y[i] = y[i].with_grad({node, static_cast<int>(i)});
  return y;
}

Tensor record(const char* op, Tensor y, std::initializer_list<Tensor> inputs,
              std::function<void(const Tensor& dy, GradSink& sink)> backward) {
  bool wanted = false;
  for (const Tensor& x : inputs) wanted = wanted || wants_grad(x);
  if (!wanted) return y;
  return record_many(op, {std::move(y)}, inputs,
                     [f = std::move(backward)](std::span<const Tensor> dy, GradSink& sink) { f(dy[0], sink); })[0];
}

bool Gradients::contains(const Tensor& leaf) const { return by_node.contains(leaf.grad().node.get()); }

const Tensor& Gradients::operator[](const Tensor& leaf) const {
  const auto found = by_node.find(leaf.grad().node.get());
  require(found != by_node.end(), "no gradient reached a tensor of shape {}", leaf.shape());
  return found->second;
}

namespace {

// Nodes in reverse recording order, so each node comes before those it was computed from. Unlike a walk of the graph, this order
// does not change when parts of the graph are folded into a checkpoint, so gradients are added in the same order and have the
// same bits.
std::vector<GradNode*> latest_first(std::span<const Tensor> outputs) {
  std::vector<GradNode*> order;
  std::unordered_set<GradNode*> seen;
  const auto visit = [&](GradNode* node) {
    if (node && seen.insert(node).second) order.push_back(node);
  };
  for (const Tensor& y : outputs) visit(y.grad().node.get());
  for (size_t i = 0; i < order.size(); ++i)
    for (const GradEdge& edge : order[i]->inputs) visit(edge.node.get());
  std::stable_sort(order.begin(), order.end(), [](const GradNode* a, const GradNode* b) { return a->sequence > b->sequence; });
  return order;
}

// The gradient of one output as it adds up. The first contribution may be shared with other nodes, so it is
// only added to in place once the sum is our own memory.
struct Sum {
  Tensor value;
  bool own = false;

  void add(const Tensor& g) {
    if (!value.defined()) {
      value = g;
      return;
    }
    Tensor target = own ? value : Tensor::like(value);
    if (value.numel() > 0) value.device().kernels().binary({Binary::Add, value, g, target});
    value = target;
    own = true;
  }
};

}  // namespace

Gradients backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients, GraphUse use, const TakeGradient& take) {
  std::unordered_map<const GradNode*, std::vector<Sum>> sums;
  const auto add = [&](const GradEdge& edge, const Tensor& g) {
    auto& slots = sums[edge.node.get()];
    slots.resize(static_cast<size_t>(edge.node->outputs));
    slots[static_cast<size_t>(edge.output)].add(g);
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    if (wants_grad(outputs[i]) && gradients[i].defined()) add(outputs[i].grad(), gradients[i]);

  Gradients result;
  const std::vector<GradNode*> order = latest_first(outputs);
  const auto is_leaf = [](const GradNode* node) { return !node->backward; };
  // How many inputs of ops that are not differentiated yet are this leaf; counted only if somebody takes gradients.
  std::unordered_map<const GradNode*, int64_t> readers;
  if (take)
    for (const GradNode* node : order)
      for (const GradEdge& edge : node->inputs)
        if (edge.node && is_leaf(edge.node.get())) ++readers[edge.node.get()];
  const auto finish_leaf = [&](const GradNode* leaf) {
    const auto found = sums.find(leaf);
    if (found == sums.end()) return;
    const Tensor gradient = std::move(found->second[0].value);
    sums.erase(found);
    if (!take || !take(*leaf, gradient)) result.by_node.emplace(leaf, gradient);
  };
  for (GradNode* node : order) {
    if (is_leaf(node)) {
      finish_leaf(node);
      continue;
    }
    const auto found = sums.find(node);
    if (found != sums.end()) {
      std::vector<Tensor> dy;
      for (Sum& s : found->second) dy.push_back(std::move(s.value));
      sums.erase(found);
      require(!node->released, "{}: its gradient was taken before, and the graph given up with it", node->op);
      GradSink::Offer offer;
      if (take)
        offer = [&](size_t input, const Tensor& gradient) {
          const GradNode* leaf = node->inputs[input].node.get();
          return is_leaf(leaf) && readers[leaf] == 1 && !sums.contains(leaf) && take(*leaf, gradient);
        };
      GradSink sink(*node, std::move(offer), [&](size_t input) {
        const GradEdge& edge = node->inputs[input];
        const auto earlier = sums.find(edge.node.get());
        return earlier == sums.end() ? Tensor() : std::exchange(earlier->second[static_cast<size_t>(edge.output)], {}).value;
      });
      // A gradient without elements changes nothing (ops/empty.h).
      if (std::any_of(dy.begin(), dy.end(), [](const Tensor& d) { return d.defined() && d.numel() > 0; }))
        node->backward(dy, sink);
      dy.clear();
      if (use == GraphUse::Release) {
        node->released = true;
        node->backward = [](std::span<const Tensor>, GradSink&) {};  // no leaf, but holds nothing
        node->output_memory = nullptr;
      }
      for (auto& [input, g] : sink.take()) add(node->inputs[input], g);
    }
    if (take)
      for (const GradEdge& edge : node->inputs)
        if (edge.node && is_leaf(edge.node.get()) && --readers[edge.node.get()] == 0) finish_leaf(edge.node.get());
  }
  return result;
}

Gradients backward(const Tensor& loss, GraphUse use) {
  require(loss.numel() == 1, "backward: the loss has shape {}, not one value", loss.shape());
  Tensor one = Tensor::like(loss);
  one.fill(1.0);
  return backward(std::span(&loss, 1), std::span(&one, 1), use);
}

std::vector<std::shared_ptr<GradNode>> leaves_of(std::span<const Tensor> outputs) {
  std::vector<std::shared_ptr<GradNode>> leaves;
  std::unordered_set<const GradNode*> seen;
  const auto keep = [&](const GradEdge& edge) {
    if (edge.node && !edge.node->backward && seen.insert(edge.node.get()).second) leaves.push_back(edge.node);
  };
  for (const Tensor& y : outputs) keep(y.grad());
  for (GradNode* node : latest_first(outputs))
    for (const GradEdge& edge : node->inputs) keep(edge);
  return leaves;
}

}  // namespace flux2
