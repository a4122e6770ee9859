#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "nn/parameter.h"
#include "ops/lora.h"
#include "tensor/communicator.h"

namespace flux2 {

// y = x · weightᵀ + bias, plus its adapters. The weight may be quantised; under LoRA it wants no gradient.
// Divided by rows each rank computes its share of the outputs; divided by columns it sees its share of the
// inputs and the call ends in an all-reduce. Who calls does not know.
struct Linear {
  Linear() = default;
  Linear(int64_t in, int64_t out, bool has_bias = false) : in(in), out(out), has_bias(has_bias) {}

  Tensor operator()(const Tensor& x) const;
  // swiglu of the outputs, which are [gate | up], in the dtype that the next layer takes.
  Tensor then_swiglu(const Tensor& x, const Linear& next) const;
  // The dtype in which this layer multiplies an input like x fastest: quantised where the device can (ops/linear.h).
  DType takes(const Tensor& x) const;
  // Whether the weight is all there is: no adapters, nobody to share with.
  bool is_plain() const { return adapters.empty() && !has_bias && (!ranks || ranks->size() == 1); }
  void visit(const std::string& name, const ParameterVisitor& visitor);

  int64_t in = 0, out = 0;  // of the whole layer
  bool has_bias = false;
  Spread spread;
  Communicator* ranks = nullptr;

  Tensor weight, bias;
  std::vector<Lora> adapters;
};

// What several layers that read one tensor all take; as it is where they differ.
DType takes(const Tensor& x, std::initializer_list<const Linear*> readers);

}  // namespace flux2
