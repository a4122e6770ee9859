#include "pipeline/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "ops/arithmetic.h"
#include "pipeline/schedule.h"

namespace flux2 {
namespace {

// A velocity that is neither linear in x nor in σ, stated in double.
double velocity(double x, double sigma) { return std::sin(1.3 * x) + 0.7 * x * sigma - sigma * sigma; }

class SamplerOn : public testing::Test {
 protected:
  // The end of a run from x, computed by the sampler under test in F64.
  double end(Sampler sampler, const std::vector<float>& sigmas, double x) {
    SamplerRun run(sampler, sigmas);
    Tensor t = value(x);
    passes_ = 0;
    for (size_t i = 0; i + 1 < sigmas.size(); ++i)
      t = run.step(t, i, [&](const Tensor& at, float sigma) {
        ++passes_;
        return value(velocity(at.to_doubles()[0], static_cast<double>(sigma)));
      });
    return t.to_doubles()[0];
  }
  Tensor value(double x) { return Tensor::from<double>(*stream_, DType::F64, {1}, std::vector<double>{x}); }

  std::shared_ptr<Stream> stream_ = open_cpu()->open_stream();
  int passes_ = 0;
};

double heun_statement(const std::vector<float>& s, double x) {
  for (size_t i = 0; i + 1 < s.size(); ++i) {
    const double a = s[i], b = s[i + 1], k1 = velocity(x, a);
    x += b > 0 ? (b - a) * 0.5 * (k1 + velocity(x + (b - a) * k1, b)) : (b - a) * k1;
  }
  return x;
}

// As the paper writes it: data prediction, second order, multistep.
double dpmpp2m_statement(const std::vector<float>& s, double x) {
  const auto lambda = [](double sigma) { return std::log(1 - sigma) - std::log(sigma); };
  double before = 0;
  for (size_t i = 0; i + 1 < s.size(); ++i) {
    const double a = s[i], b = s[i + 1], clean = x - a * velocity(x, a);
    double target = clean;
    if (i > 0 && b > 0 && s[i - 1] < 1) {
      const double r = (lambda(a) - lambda(s[i - 1])) / (lambda(b) - lambda(a));
      target = (1 + 1 / (2 * r)) * clean - 1 / (2 * r) * before;
    }
    // σ = 1 has α = 0 and e⁻ʰ = 0; σ' = 0 has e⁻ʰ = 0 too.
    const double decay = a < 1 && b > 0 ? std::exp(-(lambda(b) - lambda(a))) : 0.0;
    x = b / a * x - (1 - b) * (decay - 1) * target;
    before = clean;
  }
  return x;
}

const std::vector<std::vector<float>>& lists() {
  static const std::vector<std::vector<float>> all = {
      flux2_schedule(1024, 4), flux2_schedule(256, 20), {0.8f, 0.6f, 0.35f, 0.1f, 0.0f}, {1.0f, 0.0f}, {0.9f, 0.5f}};
  return all;
}

TEST_F(SamplerOn, HeunIsItsFormula) {
  for (const auto& sigmas : lists())
    for (double x : {-1.4, 0.3, 2.2}) EXPECT_NEAR(end(Sampler::Heun, sigmas, x), heun_statement(sigmas, x), 1e-12);
}

TEST_F(SamplerOn, Dpmpp2mIsItsFormula) {
  for (const auto& sigmas : lists())
    for (double x : {-1.4, 0.3, 2.2}) EXPECT_NEAR(end(Sampler::Dpmpp2m, sigmas, x), dpmpp2m_statement(sigmas, x), 1e-12);
}

TEST_F(SamplerOn, EulerIsItsFormula) {
  double x = 0.3;
  const std::vector<float> sigmas = {0.8f, 0.6f, 0.35f};
  for (size_t i = 0; i < 2; ++i)
    x += static_cast<double>(sigmas[i + 1] - sigmas[i]) * velocity(x, static_cast<double>(sigmas[i]));
  EXPECT_NEAR(end(Sampler::Euler, sigmas, 0.3), x, 1e-12);
}

// Halving the steps' length brings a method of second order about four times nearer.
TEST_F(SamplerOn, HigherOrdersConvergeFaster) {
  const auto list = [](int n) {
    std::vector<float> sigmas;
    for (int i = 0; i <= n; ++i) sigmas.push_back(0.9f - 0.8f * static_cast<float>(i) / static_cast<float>(n));
    return sigmas;
  };
  const double exact = end(Sampler::Heun, list(4000), 0.3);
  for (Sampler sampler : {Sampler::Heun, Sampler::Dpmpp2m}) {
    const double coarse = std::abs(end(sampler, list(20), 0.3) - exact), fine = std::abs(end(sampler, list(40), 0.3) - exact);
    EXPECT_LT(fine, coarse / 3) << static_cast<int>(sampler);
  }
}

TEST_F(SamplerOn, CountsItsPasses) {
  for (Sampler sampler : {Sampler::Euler, Sampler::Heun, Sampler::Dpmpp2m}) {
    end(sampler, flux2_schedule(256, 5), 0.1);
    EXPECT_EQ(passes_, passes_of(sampler, 5));
  }
}

}  // namespace
}  // namespace flux2
