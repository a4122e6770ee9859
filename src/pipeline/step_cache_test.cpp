#include "pipeline/step_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "ops/arithmetic.h"
#include "pipeline/schedule.h"

namespace flux2 {
namespace {

class CachedSteps : public testing::Test {
 protected:
  static constexpr int kSteps = 50, kValues = 64;

  using Velocity = std::function<double(double x, double sigma, int i)>;

  // A run by Euler's rule from values between −1 and 1.
  std::vector<float> end(const Velocity& velocity, double tolerance) {
    const std::vector<float> sigmas = make_sigmas({}, 1024, kSteps);
    StepCache cache(tolerance, sigmas);
    std::vector<float> x(kValues);
    for (int i = 0; i < kValues; ++i) x[static_cast<size_t>(i)] = static_cast<float>(2 * i - kValues) / kValues;
    computed_.clear();
    for (size_t step = 0; step < size_t{kSteps}; ++step) {
      const Tensor v = cache.velocity(step, [&] {
        computed_.push_back(step);
        std::vector<float> values(kValues);
        for (size_t i = 0; i < size_t{kValues}; ++i)
          values[i] = static_cast<float>(velocity(x[i], sigmas[step], static_cast<int>(i)));
        return Tensor::from<float>(*stream_, DType::F32, {1, kValues, 1}, values);
      });
      const std::vector<float> values = v.to_floats();
      for (size_t i = 0; i < size_t{kValues}; ++i) x[i] += (sigmas[step + 1] - sigmas[step]) * values[i];
    }
    use_ = cache.use();
    return x;
  }

  std::shared_ptr<Stream> stream_ = open_cpu()->open_stream();
  std::vector<size_t> computed_;
  StepCacheUse use_;
};

double smooth(double x, double sigma, int i) { return std::sin(1.3 * x + 0.1 * i) + 0.7 * x * sigma - sigma * sigma + 1.5; }

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  return std::sqrt(squares / size);
}

TEST_F(CachedSteps, EveryStepIsComputedWithoutATolerance) {
  end(smooth, 0);
  EXPECT_EQ(computed_.size(), size_t{kSteps});
  EXPECT_EQ(use_.computed, kSteps);
  EXPECT_EQ(use_.error, 0);
}

TEST_F(CachedSteps, ASmoothVelocityNeedsFewPassesAndEndsNearby) {
  const std::vector<float> full = end(smooth, 0);
  for (const double tolerance : {0.003, 0.01, 0.1}) {
    const std::vector<float> cached = end(smooth, tolerance);
    EXPECT_LT(use_.computed, kSteps / 2);
    EXPECT_EQ(use_.computed, static_cast<int>(computed_.size()));
    EXPECT_LE(use_.error, tolerance);
    EXPECT_LT(distance(cached, full), tolerance);
    EXPECT_EQ(computed_.front(), 0u);
    EXPECT_EQ(computed_.back(), size_t{kSteps} - 1) << "the last step gives the details";
  }
}

TEST_F(CachedSteps, ASmallerToleranceComputesMore) {
  end(smooth, 0.1);
  const int rough = use_.computed;
  end(smooth, 0.0005);
  EXPECT_GT(use_.computed, rough);
}

TEST_F(CachedSteps, AVelocityThatCannotBeForetoldIsComputed) {
  int calls = 0;
  end([&](double, double, int i) { return std::sin(static_cast<double>(7919 * (++calls) + i)); }, 0.1);
  EXPECT_EQ(use_.computed, kSteps);
}

TEST_F(CachedSteps, ValuesThatAreNotNumbersAreNeverForetold) {
  end([](double, double, int) { return std::numeric_limits<double>::quiet_NaN(); }, 1);
  EXPECT_EQ(use_.computed, kSteps);
}

TEST_F(CachedSteps, NothingIsForetoldFromStepsBeforeAJump) {
  const std::vector<float> sigmas = make_sigmas({}, 1024, kSteps);
  StepCache cache(0.1, sigmas);
  std::vector<size_t> computed;
  const auto run = [&](size_t from, size_t to) {
    for (size_t step = from; step < to; ++step)
      cache.velocity(step, [&] {
        computed.push_back(step);
        return Tensor::from<float>(*stream_, DType::F32, {1, 2, 1}, std::vector{1.0f + sigmas[step], 2.0f});
      });
  };
  run(0, 20);
  EXPECT_LT(computed.size(), 10u);
  computed.clear();
  cache.start_over();
  run(20, 30);
  EXPECT_GE(computed.size(), 3u);
  computed.resize(3);
  EXPECT_EQ(computed, (std::vector<size_t>{20, 21, 22}));
}

TEST(CacheTolerance, IsAWordOrANumber) {
  EXPECT_EQ(cache_tolerance("off"), 0);
  EXPECT_EQ(cache_tolerance("auto"), 0.1);
  EXPECT_EQ(cache_tolerance("0.25"), 0.25);
  for (const char* bad : {"", "on", "0", "-1", "1.5", "nan", "0.1x", "easy"}) EXPECT_THROW(cache_tolerance(bad), Error) << bad;
}

}  // namespace
}  // namespace flux2
