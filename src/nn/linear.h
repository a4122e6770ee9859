#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "nn/parameter.h"
#include "ops/lora.h"
#include "tensor/communicator.h"

namespace flux2 {

struct Linear;

// A change to a layer that a pair of matrices (Lora) cannot express: LoHa, LoKr, DoRA and dropouts, which training applies.
class LayerChange {
 public:
  virtual ~LayerChange() = default;
  // The output of the whole layer, including the change, for x [..., in]. It may compute the values even if they are Unused.
  virtual Tensor apply(const Linear& layer, const Tensor& x, Values values) const = 0;
};

// y = x · weightᵀ + bias, plus its adapters. The weight may be quantised; with LoRA it needs no gradient. If the weight is
// divided by rows, each rank computes its share of the outputs. If it is divided by columns, each rank reads its share of the
// inputs and the call ends with an all-reduce. The caller does not need to know.
struct Linear {
  Linear() = default;
  Linear(int64_t in, int64_t out, bool has_bias = false) : in(in), out(out), has_bias(has_bias) {}

  Tensor operator()(const Tensor& x, Values values = Values::Needed) const;
  // swiglu of the outputs [gate | up], in the dtype that the next layer prefers.
  Tensor then_swiglu(const Tensor& x, const Linear& next) const;
  // The dtype with which this layer multiplies an input like x fastest: quantised if the device supports that (ops/linear.h).
  DType takes(const Tensor& x) const;
  // Whether the layer consists of its weight alone: no adapters, no bias, no other ranks.
  bool is_plain() const { return adapters.empty() && !change && !has_bias && (!ranks || ranks->size() == 1); }
  // The layer that computes `count` of the outputs alone, in the same memory. Layers with a change have none.
  Linear outputs(int64_t first, int64_t count) const;
  void visit(const std::string& name, const ParameterVisitor& visitor);

  int64_t in = 0, out = 0;  // of the whole layer
  bool has_bias = false;
  Spread spread;
  Communicator* ranks = nullptr;

  Tensor weight, bias;
  std::vector<Lora> adapters;
  std::shared_ptr<const LayerChange> change;  // replaces the call; it applies the adapters itself if it supports them
};

// The dtype that all these layers prefer for their common input x. If they prefer different dtypes: the dtype of x.
DType takes(const Tensor& x, std::initializer_list<const Linear*> readers);

}  // namespace flux2
