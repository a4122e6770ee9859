#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// An exponential moving average of trained tensors: e ← d·e + (1 − d)·p after each optimiser step. The averages are F32 whatever
// the weights are: in BF16 they would not move, because one step is less than half of their last bit.
class WeightAverage {
 public:
  // `warmup`: the decay of step k is at most (1 + k) / (10 + k), so that the start is forgotten.
  WeightAverage(std::vector<std::pair<std::string, Tensor>> values, double decay, bool warmup);

  void update(int64_t step);  // steps count from 1
  double decay_at(int64_t step) const;

  const std::vector<std::pair<std::string, Tensor>>& averages() const { return averages_; }  // F32, by the names given
  void restore(const std::vector<std::pair<std::string, Tensor>>& saved);

  // Puts the averages in place of the weights, rounded to their type; a second call brings the weights back.
  void exchange();

 private:
  std::vector<std::pair<std::string, Tensor>> values_, averages_;
  std::vector<Tensor> kept_;  // the weights of another type, while the averages are in their place
  double decay_;
  bool warmup_;
};

}  // namespace flux2
