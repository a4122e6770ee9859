#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// An exponential moving average of trained tensors: e ← d·e + (1 − d)·p after each optimiser step.
class WeightAverage {
 public:
  // `warmup`: the decay of step k is at most (1 + k) / (10 + k), so that the start is forgotten.
  WeightAverage(std::vector<std::pair<std::string, Tensor>> values, double decay, bool warmup);

  void update(int64_t step);  // steps count from 1
  double decay_at(int64_t step) const;

  const std::vector<std::pair<std::string, Tensor>>& averages() const { return averages_; }  // F32, by the names given
  void restore(const std::vector<std::pair<std::string, Tensor>>& saved);

  // Exchanges the values with the averages; a second call exchanges them back.
  void exchange() const;

 private:
  std::vector<std::pair<std::string, Tensor>> values_, averages_;
  double decay_;
  bool warmup_;
};

}  // namespace flux2
