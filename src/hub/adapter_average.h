#pragma once

#include <filesystem>
#include <span>
#include <vector>

namespace flux2 {

// Averages the adapters that a training run saved at different steps, after the run.
//
// At time t the power-function average of parameters θ is θ̂ = (γ+1) / t^(γ+1) · ∫₀ᵗ τ^γ θ(τ) dτ: the weight of the past falls
// with a power of its relative age, so that a longer run is averaged over a longer stretch. Its relative width is the standard
// deviation of τ/t under that weight (Karras et al., "Analyzing and Improving the Training Dynamics of Diffusion Models", 2024):
//
//   sigma_rel² = (γ+1) / ((γ+2)² (γ+3))

// γ for a width; throws InvalidArgument outside 0.01 … 0.28 (above, γ would be negative).
double ema_exponent(double sigma_rel);

// The weights of snapshots taken at these increasing times (all above 0) in the average at the last time, assuming that the
// parameters were those of snapshot i since snapshot i−1: (tᵢ^(γ+1) − tᵢ₋₁^(γ+1)) / tₙ^(γ+1). They add up to 1.
std::vector<double> ema_weights(std::span<const double> times, double exponent);

struct AverageReport {
  std::vector<double> times, weights;
  bool times_known = true;  // from the files; else they count as evenly spaced
};

// Writes the average of adapters of one run, the oldest first. Every parameter is averaged by itself, as a trainer does that
// keeps an average. Times are the steps in the files' metadata (musubi, kohya, ai-toolkit), if all files have them and they
// increase. Throws Incompatible when the files do not hold the same tensors.
AverageReport average_adapters(const std::vector<std::filesystem::path>& files, double sigma_rel,
                               const std::filesystem::path& out);

}  // namespace flux2
