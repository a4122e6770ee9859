#include "pipeline/step_cache.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "ops/arithmetic.h"

namespace flux2 {

namespace {

// What the last computed step has shown is not trusted for longer.
constexpr int kMostInARow = 6;

double sum_of_squares(const Tensor& x) { return sum_of_products(x, x, {}).to_floats()[0]; }

}  // namespace

double cache_tolerance(std::string_view text) {
  if (text == "auto") return 0.1;
  if (text == "off") return 0;
  double tolerance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tolerance);
  check(error == std::errc() && end == text.data() + text.size() && tolerance > 0 && tolerance <= 1,
        "the step cache \"{}\" is not auto, off, or a number up to 1", printable(text));
  return tolerance;
}

StepCache::StepCache(double tolerance, std::vector<float> sigmas) : tolerance_(tolerance), sigmas_(std::move(sigmas)) {
  use_.steps = static_cast<int>(sigmas_.size()) - 1;
}

Tensor StepCache::velocity(size_t step, const std::function<Tensor()>& compute) {
  const double sigma = sigmas_[step];
  if (const auto error = foreseen_error(step)) {
    ++left_out_;
    const double length = static_cast<double>(sigmas_[step] - sigmas_[step + 1]);
    use_.error += *error * length / static_cast<double>(sigmas_.front() - sigmas_.back());
    return line(sigma);
  }
  ++use_.computed;
  left_out_ = 0;
  if (tolerance_ <= 0) return compute();
  Tensor v = compute().cloned();  // the next pass may overwrite it
  learn(sigma, v);
  return v;
}

void StepCache::start_over() {
  before_.reset(), last_.reset(), curvature_.reset();
  left_out_ = 0;
}

double StepCache::distance(double sigma) const { return std::abs((sigma - last_->sigma) * (sigma - before_->sigma)); }

Tensor StepCache::line(double sigma) const {
  const double ahead = (sigma - last_->sigma) / (last_->sigma - before_->sigma);
  return (1 + ahead) * last_->velocity + (-ahead) * before_->velocity;
}

std::optional<double> StepCache::foreseen_error(size_t step) const {
  const bool is_last = step + 2 >= sigmas_.size();
  if (!curvature_ || is_last || left_out_ >= kMostInARow) return {};
  const double error = *curvature_ * distance(sigmas_[step]);
  return error <= tolerance_ ? std::optional(error) : std::nullopt;
}

void StepCache::learn(double sigma, const Tensor& velocity) {
  if (before_ && distance(sigma) > 0) {
    const double off = std::sqrt(sum_of_squares(line(sigma) - velocity) / std::max(sum_of_squares(velocity), 1e-30));
    curvature_ = std::isfinite(off) ? std::optional(off / distance(sigma)) : std::nullopt;
  }
  before_ = std::move(last_);
  last_ = Computed{sigma, velocity};
}

}  // namespace flux2
