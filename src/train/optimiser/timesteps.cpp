#include "train/optimiser/timesteps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/counted_random.h"
#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr uint32_t kTimestepPurpose = 2;
constexpr uint32_t kStratumPurpose = 2 + 256;  // numbers of an epoch, where purpose 2 has numbers of samples
constexpr uint32_t kMostAttempts = 1000;
constexpr double kEdge = 1e-7;

double logistic(double v) { return 1.0 / (1.0 + std::exp(-v)); }

double shifted(double s, double v) { return s * v / (1.0 + (s - 1.0) * v); }

// The straight line through (x1, y1) and (x2, y2).
double line(double x, double x1, double y1, double x2, double y2) { return y1 + (y2 - y1) / (x2 - x1) * (x - x1); }

double halved_tokens(int64_t h, int64_t w) {
  const int64_t rows = h / 2, columns = w / 2;
  return static_cast<double>(rows * columns);
}

double flux_mu(double tokens) { return line(tokens, 256, 0.5, 4096, 1.15); }
double qwen_mu(double tokens) { return line(tokens, 256, 0.5, 8192, 0.9); }
double krea_mu(double tokens) { return line(tokens, 256, 0.5, 6400, 1.15); }

double log_snr(double mean, double deviation, double normal) { return logistic(-(mean + deviation * normal) / 2.0); }

void check_name(const std::string& name, const std::vector<std::string>& names, const char* option) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string near = nearest_word(name, names);
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("{}: \"{}\" is not one of: {}", option, printable(name), fmt::join(names, ", ")),
              near.empty() ? Hint() : Hint("did you mean {0}?", {set_option(option, near)}));
}

}  // namespace

const std::vector<std::string>& timestep_methods() {
  static const std::vector<std::string> kNames = {"sigma",       "uniform",       "sigmoid",       "shift",
                                                  "flux2_shift", "flux_shift",    "qwen_shift",    "krea2_shift",
                                                  "logsnr",      "qinglong_flux", "qinglong_qwen", "ideogram4_shift"};
  return kNames;
}

const std::vector<std::string>& weighting_schemes() {
  static const std::vector<std::string> kNames = {"none", "logit_normal", "mode", "sigma_sqrt", "cosmap"};
  return kNames;
}

double flux2_shift_mu(int64_t tokens) { return flux_mu(static_cast<double>(tokens)); }

// Abramowitz and Stegun 26.2.23 for a start (to 4.5e-4), then Halley's method on the exact function.
double inverse_normal(double u) {
  const double tail = std::min(u, 1.0 - u), t = std::sqrt(-2.0 * std::log(tail));
  double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  if (u < 0.5) x = -x;
  for (int i = 0; i < 3; ++i) {
    const double error = 0.5 * std::erfc(-x / std::numbers::sqrt2) - u;
    const double step = error * std::sqrt(2.0 * std::numbers::pi) * std::exp(0.5 * x * x);
    x -= step / (1.0 + 0.5 * x * step);
  }
  return x;
}

TimestepSampler::TimestepSampler(const TimestepOptions& options) : options_(options) {
  check_name(options_.method, timestep_methods(), "timestep_sampling");
  check_name(options_.weighting_scheme, weighting_schemes(), "weighting_scheme");
  low_ = options_.min_timestep.value_or(0);
  high_ = options_.max_timestep.value_or(1000);
  check(low_ >= 0 && high_ <= 1000 && low_ < high_,
        "min_timestep is {} and max_timestep {}; use values from 0 to 1000, the first below the second", low_, high_);
  check(options_.discrete_flow_shift > 0, "discrete_flow_shift is {}; use a number above 0", options_.discrete_flow_shift);
  check(options_.logit_std >= 0, "logit_std is {}; use 0 or more", options_.logit_std);
  check(options_.num_timestep_buckets == 0 || options_.num_timestep_buckets >= 2, "num_timestep_buckets is {}; use 2 or more",
        options_.num_timestep_buckets);
}

// Attempt a uses blocks 2a and 2a + 1, so that the second draw never shares a number with the first.
TimestepSampler::Draws TimestepSampler::draw(uint64_t seed, uint64_t sample_index, uint32_t attempt,
                                             std::optional<double> stratum) const {
  const CountedRandom random(seed, kTimestepPurpose, sample_index);
  const uint64_t first = 8ull * attempt, second = first + 4;
  const double choice = random.uniform(second);
  if (!stratum) return {random.uniform(first), random.normal(first), choice};
  // A stratum that was rejected says nothing about the next attempt.
  const double u = std::clamp(attempt == 0 ? *stratum : random.uniform(first), kEdge, 1.0 - kEdge);
  return {u, inverse_normal(u), choice};
}

double TimestepSampler::raw(const Draws& d, int64_t h, int64_t w) const {
  const TimestepOptions& o = options_;
  const auto shifted_by = [&](double s) { return shifted(s, logistic(o.sigmoid_scale * d.normal)); };
  const auto late_log_snr = [&] { return log_snr(5.36, 1.0, d.normal); };
  if (o.method == "uniform") return d.uniform;
  if (o.method == "sigmoid") return logistic(o.sigmoid_scale * d.normal);
  if (o.method == "shift") return shifted_by(o.discrete_flow_shift);
  if (o.method == "flux2_shift") return shifted_by(std::exp(flux2_shift_mu(h * w)));
  if (o.method == "flux_shift") return shifted_by(std::exp(flux_mu(halved_tokens(h, w))));
  if (o.method == "qwen_shift") return shifted_by(std::exp(qwen_mu(halved_tokens(h, w))));
  if (o.method == "krea2_shift") return shifted_by(std::exp(krea_mu(halved_tokens(h, w))));
  if (o.method == "logsnr") return log_snr(o.logit_mean, o.logit_std, d.normal);
  if (o.method == "qinglong_flux") {
    if (d.choice < 0.79) return shifted_by(std::exp(flux_mu(halved_tokens(h, w))));
    return d.choice < 0.90 ? log_snr(o.logit_mean, o.logit_std, d.normal) : late_log_snr();
  }
  if (o.method == "qinglong_qwen") return d.choice < 0.95 ? shifted_by(std::exp(qwen_mu(halved_tokens(h, w)))) : late_log_snr();
  // ideogram4_shift
  const double z = inverse_normal(std::clamp(d.uniform, kEdge, 1.0 - kEdge));
  const double mean = 0.5 * std::log(256.0 * static_cast<double>(h * w) / (512.0 * 512.0));
  const double lowest = 1.0 / (1.0 + std::exp(9.0)), highest = 1.0 / (1.0 + std::exp(-7.5));
  return std::clamp(logistic(mean + 1.5 * z), 1.0 - highest, 1.0 - lowest);
}

// σ of the table 1 − i / 1000. Large u is little noise here, unlike in all other methods, and the range counts along the table.
double TimestepSampler::sigma(const Draws& d) const {
  const TimestepOptions& o = options_;
  double u = d.uniform;
  if (o.weighting_scheme == "logit_normal") u = logistic(o.logit_mean + o.logit_std * d.normal);
  if (o.weighting_scheme == "mode") {
    const double c = std::cos(std::numbers::pi * u / 2.0);
    u = 1.0 - u - o.mode_scale * (c * c - 1.0 + u);
  }
  const double index = std::clamp(std::floor(u * (high_ - low_) + low_), 0.0, 999.0);
  return 1.0 - index / 1000.0;
}

Timestep TimestepSampler::sample(uint64_t seed, uint64_t sample_index, int64_t h, int64_t w,
                                 std::optional<double> stratum) const {
  check(h > 0 && w > 0, "latents of {}x{} are empty", h, w);
  const auto finished = [&](double t, double model_time) {
    return Timestep{static_cast<float>(t), static_cast<float>(model_time), weight(model_time)};
  };
  if (options_.method == "sigma") {
    const double t = sigma(draw(seed, sample_index, 0, stratum));
    return finished(t, t);
  }
  const bool limited = low_ > 0 || high_ < 1000;
  const double first = raw(draw(seed, sample_index, 0, stratum), h, w);
  if (limited && options_.preserve_distribution_shape) {
    double t = first;
    for (uint32_t attempt = 1; (1000.0 * t < low_ || 1000.0 * t > high_) && attempt < kMostAttempts; ++attempt)
      t = raw(draw(seed, sample_index, attempt, stratum), h, w);
    if (1000.0 * t >= low_ && 1000.0 * t <= high_) return finished(t, t + options_.timestep_offset);
  }
  const double t = limited ? first * (high_ - low_) / 1000.0 + low_ / 1000.0 : first;
  return finished(t, t + options_.timestep_offset);
}

// Weights look at the nearest σ of the table, whose smallest is 0.001: σ⁻² stays finite.
double TimestepSampler::weight(double model_time) const {
  const double sigma = std::clamp(std::round(1000.0 * model_time), 1.0, 1000.0) / 1000.0;
  if (options_.weighting_scheme == "sigma_sqrt") return 1.0 / (sigma * sigma);
  if (options_.weighting_scheme == "cosmap") return 2.0 / (std::numbers::pi * (1.0 - 2.0 * sigma + 2.0 * sigma * sigma));
  return 1.0;
}

StratifiedTimesteps::StratifiedTimesteps(uint64_t seed, uint64_t epoch, uint32_t dataset, int64_t count, int buckets) {
  check(count >= 0 && buckets >= 2, "{} timesteps cannot be spread over {} intervals", count, buckets);
  const CountedRandom random(seed, kStratumPurpose, epoch << 32 | dataset);
  const int64_t each = (count + buckets - 1) / buckets;
  values_.resize(static_cast<size_t>(each * buckets));
  for (size_t i = 0; i < values_.size(); ++i) {
    const int64_t interval = static_cast<int64_t>(i) / each;
    values_[i] = (static_cast<double>(interval) + random.uniform(i)) / buckets;
  }
  random.shuffle(std::span<double>(values_), values_.size());
  values_.resize(static_cast<size_t>(count));
}

std::vector<std::string> timestep_histogram(const TimestepSampler& sampler, uint64_t seed, int64_t h, int64_t w,
                                            int64_t samples) {
  constexpr int kLines = 40, kWidth = 25;  // 25 timesteps a line
  std::vector<int64_t> counts(kLines, 0);
  const int buckets = sampler.options().num_timestep_buckets;
  std::optional<StratifiedTimesteps> strata;
  if (buckets > 0) strata.emplace(seed, 0, 0, samples, buckets);
  for (int64_t i = 0; i < samples; ++i) {
    const auto stratum = strata ? std::optional(strata->at(i)) : std::nullopt;
    const Timestep t = sampler.sample(seed, static_cast<uint64_t>(i), h, w, stratum);
    ++counts[static_cast<size_t>(std::clamp(static_cast<int>(1000.0 * static_cast<double>(t.t)) / kWidth, 0, kLines - 1))];
  }
  const int64_t most = std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
  std::vector<std::string> lines;
  for (int i = 0; i < kLines; ++i) {
    const int64_t count = counts[static_cast<size_t>(i)];
    const double middle = (kWidth * i + kWidth / 2.0) / 1000.0;
    lines.push_back(fmt::format("{:4}–{:<4} {:6.2f} %  weight {:<9.4g} {}", kWidth * i, kWidth * (i + 1),
                                100.0 * static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, samples)),
                                sampler.weight(middle), std::string(static_cast<size_t>(50 * count / most), '#')));
  }
  return lines;
}

}  // namespace flux2
