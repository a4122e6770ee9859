#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace flux2 {

// The resolution- and step-dependent shift of FLUX.2, from the number of target tokens. Above 4300 tokens it no longer depends on
// the steps and drops abruptly, as in the reference.
double flux2_mu(int64_t tokens, int steps);

// σ₀ … σₙ, from 1 to exactly 0: step i goes from σᵢ to σᵢ₊₁. Bit for bit what the reference computes.
std::vector<float> flux2_schedule(int64_t tokens, int steps);
std::vector<float> shifted_schedule(double mu, int steps);

// How the flow time is chosen: "model", "linear", "power[:a]" (σ = s^a of the linear list s), "sigmas:a,b,…".
struct Schedule {
  enum Kind { Model, Linear, Power, Sigmas } kind = Model;
  double power = 2.0;
  std::vector<float> sigmas;  // a final 0 is added when missing
};
Schedule parse_schedule(std::string_view text);

// `shift` replaces exp(mu) where given (> 0); a list of sigmas is taken as it stands.
std::vector<float> make_sigmas(const Schedule& schedule, int64_t tokens, int steps, double shift = 0.0);

// The argument of the time sinusoid: 1000σ, or this number rounded like the bf16 samplers of the references.
enum class TimeRounding { Exact, Bfl, Diffusers };
TimeRounding parse_time_rounding(std::string_view text);
float time_argument(float sigma, TimeRounding rounding);

}  // namespace flux2
