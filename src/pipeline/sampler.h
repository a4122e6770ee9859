#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// How a step from σ to σ' follows the velocity v(x, σ); the clean image it points at is D = x − σ·v.
//   Euler  x' = x + (σ' − σ)·v
//   Heun   the mean of the velocities at both ends: two passes a step, except into σ' = 0
//   DPM-Solver++(2M), with α = 1 − σ, λ = log(α/σ), h = λ' − λ, r = h of the step before / h:
//          x' = (σ'/σ)·x + α'·(1 − e⁻ʰ)·((1 + 1/2r)·D − 1/2r·D_before); of first order where λ is not finite
enum class Sampler { Euler, Heun, Dpmpp2m };

Sampler sampler_named(std::string_view name);  // "euler", "heun", "dpmpp2m"
int passes_of(Sampler sampler, int steps);     // evaluations of the velocity

// One run over a falling list of sigmas.
class SamplerRun {
 public:
  using Velocity = std::function<Tensor(const Tensor& x, float sigma)>;

  SamplerRun(Sampler sampler, std::vector<float> sigmas) : sampler_(sampler), sigmas_(std::move(sigmas)) {}

  // x after step i. Steps are taken in their order.
  Tensor step(const Tensor& x, size_t i, const Velocity& velocity);

 private:
  Tensor heun(const Tensor& x, const Tensor& v, float from, float to, const Velocity& velocity) const;
  Tensor dpmpp2m(const Tensor& x, const Tensor& v, size_t i);

  Sampler sampler_;
  std::vector<float> sigmas_;
  Tensor clean_before_;  // D of the step before
};

}  // namespace flux2
