#include "train/optimiser/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace flux2 {

namespace {

LearningRateOptions rate_options(const std::string& name, int64_t total, const std::string& warmup = "0") {
  LearningRateOptions o;
  o.lr_scheduler = name;
  o.total_steps = total;
  o.lr_warmup_steps = warmup;
  return o;
}

LearningRateSchedule schedule(const std::string& name, int64_t total, const std::string& warmup = "0") {
  return LearningRateSchedule(rate_options(name, total, warmup));
}

TEST(LearningRate, StepsAreNumbersFractionsOrPercentages) {
  EXPECT_EQ(steps_of_run("0", 1600, "w"), 0);
  EXPECT_EQ(steps_of_run("100", 1600, "w"), 100);
  EXPECT_EQ(steps_of_run("0.1", 1600, "w"), 160);
  EXPECT_EQ(steps_of_run("10%", 1600, "w"), 160);
  EXPECT_EQ(steps_of_run("29%", 100, "w"), 29);
  EXPECT_EQ(steps_of_run("100%", 77, "w"), 77);
  for (const char* bad : {"", "-1", "1.5", "200%", "many", "nan"}) EXPECT_THROW(steps_of_run(bad, 100, "w"), Error) << bad;
}

TEST(LearningRate, ConstantHasNoWarmUp) {
  EXPECT_EQ(schedule("constant", 100).factor(57), 1.0);
  EXPECT_THROW(schedule("constant", 100, "5"), Error);
  EXPECT_THROW(schedule("cosinus", 100), Error);
}

TEST(LearningRate, WarmUpStartsAtZero) {
  for (const char* name : {"constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt"}) {
    const LearningRateSchedule s = schedule(name, 100, "10");
    EXPECT_EQ(s.factor(0, 1e-3), 0.0) << name;
    EXPECT_DOUBLE_EQ(s.factor(3, 1e-3), 0.3) << name;
    EXPECT_NEAR(s.factor(10, 1e-3), 1.0, 1e-12) << name;
  }
}

TEST(LearningRate, LinearAndCosineEndAtZero) {
  EXPECT_DOUBLE_EQ(schedule("linear", 110, "10").factor(60), 0.5);
  EXPECT_EQ(schedule("linear", 110, "10").factor(110), 0.0);
  EXPECT_NEAR(schedule("cosine", 100).factor(25), 0.5 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  EXPECT_NEAR(schedule("cosine", 100).factor(100), 0.0, 1e-12);
}

TEST(LearningRate, CosineWithRestarts) {
  LearningRateOptions o = rate_options("cosine_with_restarts", 100);
  o.lr_scheduler_num_cycles = 4;
  const LearningRateSchedule s(o);
  EXPECT_NEAR(s.factor(0), 1.0, 1e-12);
  EXPECT_NEAR(s.factor(24), 0.5 * (1 + std::cos(std::numbers::pi * 0.96)), 1e-12);
  EXPECT_NEAR(s.factor(25), 1.0, 1e-12);
  EXPECT_EQ(s.factor(100), 0.0);
}

TEST(LearningRate, PolynomialEndsAtOneRateForAllGroups) {
  LearningRateOptions o = rate_options("polynomial", 100);
  o.lr_scheduler_power = 2;
  const LearningRateSchedule s(o);
  EXPECT_NEAR(s.factor(50, 1e-4) * 1e-4, (1e-4 - 1e-7) * 0.25 + 1e-7, 1e-18);
  for (const double rate : {1e-4, 4e-4}) EXPECT_NEAR(s.factor(101, rate) * rate, 1e-7, 1e-20);
  EXPECT_THROW(s.factor(5, 1e-8), Error);
}

TEST(LearningRate, InverseSquareRoot) {
  EXPECT_DOUBLE_EQ(schedule("inverse_sqrt", 100).factor(30000), 0.5);
  EXPECT_DOUBLE_EQ(schedule("inverse_sqrt", 100, "10").factor(40), 0.5);
  LearningRateOptions o = rate_options("inverse_sqrt", 100);
  o.lr_scheduler_timescale = 20;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(o).factor(60), 0.5);
}

TEST(LearningRate, CosineWithMinLr) {
  LearningRateOptions o = rate_options("cosine_with_min_lr", 100);
  EXPECT_THROW(LearningRateSchedule{o}, Error);
  o.lr_scheduler_min_lr_ratio = 0.1;
  EXPECT_NEAR(LearningRateSchedule(o).factor(50), 0.55, 1e-12);
  EXPECT_NEAR(LearningRateSchedule(o).factor(100), 0.1, 1e-12);
}

TEST(LearningRate, WarmupStableDecay) {
  LearningRateOptions o = rate_options("warmup_stable_decay", 100, "10");
  o.lr_decay_steps = "20%";
  o.lr_scheduler_min_lr_ratio = 0.2;
  const LearningRateSchedule s(o);
  EXPECT_DOUBLE_EQ(s.factor(0), 0.2);
  EXPECT_DOUBLE_EQ(s.factor(5), 0.6);
  EXPECT_EQ(s.factor(10), 1.0);
  EXPECT_EQ(s.factor(79), 1.0);
  EXPECT_NEAR(s.factor(90), 0.6, 1e-12);
  EXPECT_EQ(s.factor(100), 0.2);
  EXPECT_EQ(s.factor(500), 0.2);
  o.lr_decay_steps = "95";
  EXPECT_THROW(LearningRateSchedule{o}, Error);
}

TEST(LearningRate, Rex) {
  LearningRateOptions o = rate_options("rex", 110, "10");
  const LearningRateSchedule s(o);
  EXPECT_DOUBLE_EQ(s.factor(0), 0.01);
  EXPECT_DOUBLE_EQ(s.factor(1), 0.01);
  EXPECT_DOUBLE_EQ(s.factor(4), 0.01 + 0.99 * 3 / 9);
  EXPECT_DOUBLE_EQ(s.factor(10), 1.0);
  EXPECT_DOUBLE_EQ(s.factor(60), 0.01 + 0.99 * 0.5 / (0.1 + 0.45));
  EXPECT_DOUBLE_EQ(s.factor(110), 0.01);
  o.lr_scheduler_args = {"rex_alpha=0.5", "rex_beta=0.5"};
  EXPECT_DOUBLE_EQ(LearningRateSchedule(o).factor(60), 0.01 + 0.99 * 0.5 / 0.75);
  o.lr_scheduler_args = {"rex_alfa=0.5"};
  EXPECT_THROW(LearningRateSchedule{o}, Error);
}

TEST(LearningRate, PiecewiseConstant) {
  LearningRateOptions o = rate_options("piecewise_constant", 100);
  EXPECT_THROW(LearningRateSchedule{o}, Error);
  o.lr_scheduler_args = {"step_rules=\"1:10,0.1:20,0.01\""};
  const LearningRateSchedule s(o);
  EXPECT_EQ(s.factor(9), 1.0);
  EXPECT_EQ(s.factor(10), 0.1);
  EXPECT_EQ(s.factor(20), 0.01);
  for (const char* bad : {"step_rules=1:10", "step_rules=1,2", "step_rules=a:1,2", "step_rules=", "step_rules=1:1.5,2"}) {
    o.lr_scheduler_args = {bad};
    EXPECT_THROW(LearningRateSchedule{o}, Error) << bad;
  }
}

}  // namespace

}  // namespace flux2
