#include "pipeline/schedule.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "tensor/dtype.h"

// Compiled with contraction of multiply-adds off, so that every operation rounds as the reference's does.

namespace flux2 {

double flux2_mu(int64_t tokens, int steps) {
  const auto length = static_cast<double>(tokens);
  const double at_200 = 0.00016927 * length + 0.45666666;
  if (tokens > 4300) return at_200;
  const double at_10 = 8.73809524e-05 * length + 1.89833333;
  const double slope = (at_200 - at_10) / 190.0;
  return slope * steps + (at_200 - 200.0 * slope);
}

std::vector<float> shifted_schedule(double mu, int steps) {
  const auto e = static_cast<float>(std::exp(mu));
  const float d = -1.0f / static_cast<float>(steps);
  std::vector<float> sigmas;
  for (int i = 0; i <= steps; ++i) {
    const float s = i < (steps + 1) / 2 ? std::fma(d, static_cast<float>(i), 1.0f) : -d * static_cast<float>(steps - i);
    if (s == 0.0f) {
      sigmas.push_back(0.0f);
      continue;
    }
    const float q = 1.0f / s - 1.0f;
    sigmas.push_back((1.0f / (e + q)) * e);  // a reciprocal and a product instead of a division, to match the last bit
  }
  return sigmas;
}

std::vector<float> flux2_schedule(int64_t tokens, int steps) { return shifted_schedule(flux2_mu(tokens, steps), steps); }

namespace {

double parse_number(std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && std::isfinite(value), "{}: \"{}\" is not a number", what,
        text);
  return value;
}

}  // namespace

Schedule parse_schedule(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  Schedule s;
  if (name == "model" && rest.empty()) return s;
  if (name == "linear" && rest.empty()) return {.kind = Schedule::Linear};
  if (name == "power") {
    s.kind = Schedule::Power;
    if (!rest.empty()) s.power = parse_number(rest, "schedule power");
    check(s.power > 0, "schedule power: the exponent must be positive");
    return s;
  }
  check(name == "sigmas" && !rest.empty(), "schedule \"{}\" is not one of model, linear, power[:a], sigmas:a,b,…", text);
  s.kind = Schedule::Sigmas;
  for (size_t at = 0; at <= rest.size();) {
    const size_t comma = std::min(rest.find(',', at), rest.size());
    const double v = parse_number(rest.substr(at, comma - at), "schedule sigmas");
    check(v >= 0 && v <= 1, "schedule sigmas: {} is outside 0…1", v);
    check(s.sigmas.empty() || v < static_cast<double>(s.sigmas.back()), "schedule sigmas: values must fall");
    s.sigmas.push_back(static_cast<float>(v));
    at = comma + 1;
  }
  if (s.sigmas.back() != 0.0f) s.sigmas.push_back(0.0f);
  check(s.sigmas.size() >= 2, "schedule sigmas: at least one value above 0 is needed");
  return s;
}

std::vector<float> make_sigmas(const Schedule& schedule, int64_t tokens, int steps, double shift) {
  check(steps >= 1 && steps <= 1000, "{} steps: between 1 and 1000 are possible", steps);
  if (schedule.kind == Schedule::Sigmas) return schedule.sigmas;
  if (schedule.kind == Schedule::Model) {
    check(shift >= 0, "the shift must be positive");
    return shifted_schedule(shift > 0 ? std::log(shift) : flux2_mu(tokens, steps), steps);
  }
  std::vector<float> sigmas;
  for (int i = 0; i <= steps; ++i) {
    const double s = 1.0 - static_cast<double>(i) / steps;
    double v = schedule.kind == Schedule::Power ? std::pow(s, schedule.power) : s;
    if (shift > 0 && v > 0) v = shift * v / (1.0 + (shift - 1.0) * v);
    sigmas.push_back(static_cast<float>(v));
  }
  return sigmas;
}

TimeRounding parse_time_rounding(std::string_view text) {
  if (text == "exact") return TimeRounding::Exact;
  if (text == "bfl") return TimeRounding::Bfl;
  if (text == "diffusers") return TimeRounding::Diffusers;
  fail(ErrorCode::InvalidArgument, "time rounding \"{}\" is not one of exact, bfl, diffusers", text);
}

float time_argument(float sigma, TimeRounding rounding) {
  const auto rounded = [](float v) { return to_float(to_bf16(v)); };
  switch (rounding) {
    case TimeRounding::Exact: return 1000.0f * sigma;
    case TimeRounding::Bfl: return rounded(1000.0f * rounded(sigma));
    case TimeRounding::Diffusers: return rounded(1000.0f * rounded(rounded(1000.0f * sigma) / 1000.0f));
  }
  return 0;
}

}  // namespace flux2
