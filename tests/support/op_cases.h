#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// One use of an op on given shapes. The same list feeds three runs: agreement of every device with the scalar
// kernels, gradients against finite differences in double, and timing.
struct OpCase {
  std::string name;           // "rms_norm/17"
  std::vector<Shape> inputs;  // float inputs, filled with random values
  std::function<Tensor(const std::vector<Tensor>& x)> run;
  int64_t terms = 1;            // how many products or values one output adds up: scales the tolerance
  bool differentiable = true;   // the gradient is compared with finite differences
  bool large = false;           // real sizes: agreement and timing only
  double flop = 0;              // for timing; 0: memory-bound
  bool rounds_in_fast = false;  // f32 inputs are rounded to bf16 in profile fast
  bool has_gradient = true;     // false: for inference alone
};

std::vector<OpCase> op_cases();

// Values of about unit size, the same for one seed on every machine and in every dtype (up to rounding).
Tensor random_tensor(Stream& stream, DType dtype, const Shape& shape, uint64_t seed, double spread = 1.0);

// ‖a − b‖ / ‖b‖, in double. Prints the worst element on request.
struct Difference {
  double relative = 0;
  double worst = 0;  // largest |a − b|
  int64_t worst_at = 0;
  double a_there = 0, b_there = 0;
  std::string str() const;
};
Difference difference(const std::vector<double>& a, const std::vector<double>& b);
Difference difference(const Tensor& a, const Tensor& b);

// The error that rounding alone can cause in sums of `terms` values of a dtype, with a small margin. It is derived, so exceeding
// it means a bug.
double tolerance(DType dtype, int64_t terms);

}  // namespace flux2
