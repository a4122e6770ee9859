#include "pipeline/sampler.h"

#include <cmath>
#include <utility>

#include "ops/arithmetic.h"

namespace flux2 {

namespace {

double log_ratio(double sigma) { return std::log((1.0 - sigma) / sigma); }  // ±∞ at the ends

}  // namespace

Sampler sampler_named(std::string_view name) {
  if (name == "euler") return Sampler::Euler;
  if (name == "heun") return Sampler::Heun;
  if (name == "dpmpp2m") return Sampler::Dpmpp2m;
  fail(ErrorCode::InvalidArgument, "sampler \"{}\" is not one of euler, heun, dpmpp2m", name);
}

int passes_of(Sampler sampler, int steps) { return sampler == Sampler::Heun ? 2 * steps - 1 : steps; }

Tensor SamplerRun::step(const Tensor& x, size_t i, const Velocity& velocity) {
  const float from = sigmas_[i], to = sigmas_[i + 1];
  const Tensor v = velocity(x, from);
  switch (sampler_) {
    case Sampler::Euler: break;
    case Sampler::Heun: return heun(x, v, from, to, velocity);
    case Sampler::Dpmpp2m: return dpmpp2m(x, v, i);
  }
  return x + static_cast<double>(to - from) * v;
}

Tensor SamplerRun::heun(const Tensor& x, const Tensor& v, float from, float to, const Velocity& velocity) const {
  const double d = static_cast<double>(to) - static_cast<double>(from);
  if (to == 0.0f) return x + d * v;
  const Tensor first = v.cloned();  // the second pass may overwrite the result of the first
  return x + (d / 2) * (first + velocity(x + d * first, to));
}

Tensor SamplerRun::dpmpp2m(const Tensor& x, const Tensor& v, size_t i) {
  const double from = sigmas_[i], to = sigmas_[i + 1];
  const Tensor clean = x + (-from) * v;
  const Tensor before = std::exchange(clean_before_, clean);
  if (to == 0.0) return clean;
  const double h = log_ratio(to) - log_ratio(from);
  const double weight = (1.0 - to) * (1.0 - std::exp(-h));
  const double h_before = before.defined() ? log_ratio(from) - log_ratio(static_cast<double>(sigmas_[i - 1])) : INFINITY;
  const double c = std::isfinite(h_before) && std::isfinite(h) ? h / h_before / 2 : 0.0;  // 1/2r
  const Tensor target = c == 0.0 ? clean : (1 + c) * clean + (-c) * before;
  return (to / from) * x + weight * target;
}

}  // namespace flux2
