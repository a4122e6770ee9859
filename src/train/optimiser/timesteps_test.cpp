#include "train/optimiser/timesteps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/counted_random.h"
#include "base/error.h"

namespace flux2 {

namespace {

TimestepSampler sampler(const std::string& method, const std::string& weighting = "none") {
  TimestepOptions o;
  o.method = method;
  o.weighting_scheme = weighting;
  return TimestepSampler(o);
}

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

TEST(Timesteps, Flux2ShiftTable) {
  const struct {
    int64_t tokens;
    double mu, s;
  } table[] = {{1024, 0.6300, 1.878}, {2304, 0.8467, 2.332}, {4096, 1.15, 3.158},
               {6400, 1.54, 4.665},   {9216, 2.0167, 7.513}, {16384, 3.23, 25.28}};
  for (const auto& row : table) {
    EXPECT_NEAR(flux2_shift_mu(row.tokens), row.mu, 5e-5);
    EXPECT_NEAR(std::exp(flux2_shift_mu(row.tokens)), row.s, row.s * 3e-4);
  }
}

TEST(Timesteps, AreFormedInDoubleFromTheirOwnDraws) {
  for (const uint64_t index : {0ull, 1ull, 77ull, 5000000000ull}) {
    const CountedRandom random(42, 2, index);
    const double n = random.normal(0), u = random.uniform(0), v = sigmoid(n), choice = random.uniform(4);
    const auto t_of = [&](const char* method) { return sampler(method).sample(42, index, 64, 48).t; };
    EXPECT_EQ(t_of("uniform"), static_cast<float>(u));
    EXPECT_EQ(t_of("sigmoid"), static_cast<float>(v));
    EXPECT_EQ(t_of("shift"), static_cast<float>(v));
    const auto shift = [&](double mu) { return static_cast<float>(std::exp(mu) * v / (1 + (std::exp(mu) - 1) * v)); };
    EXPECT_FLOAT_EQ(t_of("flux2_shift"), shift(0.5 + 0.65 / 3840 * (64 * 48 - 256)));
    EXPECT_FLOAT_EQ(t_of("flux_shift"), shift(0.5 + 0.65 / 3840 * (32 * 24 - 256)));
    EXPECT_FLOAT_EQ(t_of("qwen_shift"), shift(0.5 + 0.4 / 7936 * (32 * 24 - 256)));
    EXPECT_FLOAT_EQ(t_of("krea2_shift"), shift(0.5 + 0.65 / 6144 * (32 * 24 - 256)));
    EXPECT_FLOAT_EQ(t_of("logsnr"), static_cast<float>(sigmoid(-n / 2)));
    const double late = sigmoid(-(5.36 + n) / 2);
    EXPECT_FLOAT_EQ(t_of("qinglong_flux"), choice < 0.79   ? t_of("flux_shift")
                                           : choice < 0.90 ? t_of("logsnr")
                                                           : static_cast<float>(late));
    EXPECT_FLOAT_EQ(t_of("qinglong_qwen"), choice < 0.95 ? t_of("qwen_shift") : static_cast<float>(late));
    const double z = inverse_normal(u), m = 0.5 * std::log(256.0 * 64 * 48 / (512 * 512));
    EXPECT_FLOAT_EQ(t_of("ideogram4_shift"),
                    static_cast<float>(std::clamp(sigmoid(m + 1.5 * z), 1 - sigmoid(7.5), 1 - sigmoid(-9))));
  }
}

TEST(Timesteps, TheOffsetMovesOnlyTheTimeOfTheModel) {
  TimestepOptions o;
  o.method = "uniform";
  o.timestep_offset = 0.001;
  const Timestep with = TimestepSampler(o).sample(1, 2, 8, 8), without = sampler("uniform").sample(1, 2, 8, 8);
  EXPECT_EQ(with.t, without.t);
  EXPECT_NEAR(with.model_time - with.t, 0.001, 1e-7);
  EXPECT_EQ(without.model_time, without.t);
  o.method = "sigma";
  const Timestep sigma = TimestepSampler(o).sample(1, 2, 8, 8);
  EXPECT_EQ(sigma.model_time, sigma.t);
}

TEST(Timesteps, RangesSqueezeOrReject) {
  TimestepOptions o;
  o.method = "sigmoid";
  o.min_timestep = 200;
  o.max_timestep = 600;
  const TimestepSampler squeezed(o);
  o.preserve_distribution_shape = true;
  const TimestepSampler kept(o);
  int same = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const double t = sampler("sigmoid").sample(3, i, 8, 8).t;
    EXPECT_NEAR(squeezed.sample(3, i, 8, 8).t, t * 0.4 + 0.2, 1e-6);
    const double k = kept.sample(3, i, 8, 8).t;
    EXPECT_TRUE(k >= 0.2 - 1e-7 && k <= 0.6 + 1e-7) << k;
    if (t < 0.2 || t > 0.6) continue;
    EXPECT_EQ(static_cast<float>(k), static_cast<float>(t));
    ++same;
  }
  EXPECT_GT(same, 500);
}

TEST(Timesteps, ARangeThatIsNeverHitFallsBackToTheSqueeze) {
  TimestepOptions o;
  o.method = "logsnr";
  o.logit_mean = -40;  // t is 1
  o.logit_std = 0;
  o.max_timestep = 100;
  o.preserve_distribution_shape = true;
  EXPECT_NEAR(TimestepSampler(o).sample(3, 0, 8, 8).t, 0.1, 1e-6);
}

TEST(Timesteps, SigmaUsesItsTable) {
  const TimestepSampler plain = sampler("sigma");
  for (uint64_t i = 0; i < 1000; ++i) {
    const double u = CountedRandom(9, 2, i).uniform(0);
    const double index = std::floor(u * 1000);
    EXPECT_EQ(plain.sample(9, i, 8, 8).t, static_cast<float>(1 - index / 1000));
  }
  const double n = CountedRandom(9, 2, 4).normal(0), u = CountedRandom(9, 2, 4).uniform(0);
  EXPECT_EQ(sampler("sigma", "logit_normal").sample(9, 4, 8, 8).t, static_cast<float>(1 - std::floor(sigmoid(n) * 1000) / 1000));
  const double c = std::cos(std::acos(-1.0) * u / 2);
  EXPECT_EQ(sampler("sigma", "mode").sample(9, 4, 8, 8).t,
            static_cast<float>(1 - std::floor((1 - u - 1.29 * (c * c - 1 + u)) * 1000) / 1000));
  TimestepOptions o;
  o.max_timestep = 500;  // along the table: the half with more noise
  for (uint64_t i = 0; i < 200; ++i) EXPECT_GT(TimestepSampler(o).sample(9, i, 8, 8).t, 0.5f);
  o = {};
  o.weighting_scheme = "logit_normal";
  o.logit_mean = 100;  // u = 1 stays inside the table
  EXPECT_EQ(TimestepSampler(o).sample(9, 0, 8, 8).t, 0.001f);
}

TEST(Timesteps, LossWeights) {
  EXPECT_EQ(sampler("uniform").weight(0.3), 1.0);
  EXPECT_EQ(sampler("uniform", "logit_normal").weight(0.3), 1.0);
  EXPECT_NEAR(sampler("uniform", "sigma_sqrt").weight(0.5), 4.0, 1e-12);
  EXPECT_NEAR(sampler("uniform", "sigma_sqrt").weight(0.0), 1e6, 1e-3);
  EXPECT_NEAR(sampler("uniform", "cosmap").weight(0.5), 4 / std::acos(-1.0), 1e-12);
  EXPECT_NEAR(sampler("uniform", "cosmap").weight(1.0), 2 / std::acos(-1.0), 1e-12);
}

TEST(Timesteps, StrataHoldEqualShares) {
  const StratifiedTimesteps strata(42, 3, 1, 103, 10);
  std::vector<int> counts(10, 0);
  std::set<double> distinct;
  for (int64_t i = 0; i < 103; ++i) {
    const double u = strata.at(i);
    ASSERT_TRUE(u > 0 && u < 1);
    ++counts[static_cast<size_t>(u * 10)];
    distinct.insert(u);
  }
  for (const int n : counts) EXPECT_TRUE(n >= 4 && n <= 11) << n;
  EXPECT_EQ(distinct.size(), 103u);
  const StratifiedTimesteps whole(42, 3, 1, 100, 10);
  std::vector<int> even(10, 0);
  for (const double u : whole.values()) ++even[static_cast<size_t>(u * 10)];
  EXPECT_EQ(even, std::vector<int>(10, 10));
  EXPECT_EQ(strata.values(), StratifiedTimesteps(42, 3, 1, 103, 10).values());
  EXPECT_NE(strata.values(), StratifiedTimesteps(42, 4, 1, 103, 10).values());
  EXPECT_NE(strata.values(), StratifiedTimesteps(42, 3, 2, 103, 10).values());
}

TEST(Timesteps, AStratumReplacesTheDraw) {
  EXPECT_EQ(sampler("uniform").sample(1, 1, 8, 8, 0.25).t, 0.25f);
  EXPECT_FLOAT_EQ(sampler("sigmoid").sample(1, 1, 8, 8, 0.25).t, static_cast<float>(sigmoid(inverse_normal(0.25))));
  EXPECT_GT(sampler("sigmoid").sample(1, 1, 8, 8, 0.0).t, 0.0f);
}

TEST(Timesteps, InverseNormal) {
  EXPECT_NEAR(inverse_normal(0.5), 0.0, 1e-15);
  EXPECT_NEAR(inverse_normal(0.975), 1.959963984540054, 1e-13);
  EXPECT_NEAR(inverse_normal(1e-7), -5.199337582192817, 1e-12);
  EXPECT_NEAR(inverse_normal(1 - 1e-7), 5.199337582290661, 1e-8);
}

TEST(Timesteps, HistogramOfAUniformDraw) {
  const auto lines = timestep_histogram(sampler("uniform", "sigma_sqrt"), 1, 64, 64);
  ASSERT_EQ(lines.size(), 40u);
  EXPECT_TRUE(lines[20].starts_with(" 500–525 ")) << lines[20];
  double total = 0;
  for (const std::string& line : lines) total += std::stod(line.substr(line.find(' ', 5)));
  EXPECT_NEAR(total, 100, 0.2);
}

TEST(Timesteps, WrongOptionsAreErrors) {
  EXPECT_THROW(sampler("flux3_shift"), Error);
  EXPECT_THROW(sampler("uniform", "cosmop"), Error);
  TimestepOptions o;
  o.min_timestep = 600, o.max_timestep = 500;
  EXPECT_THROW(TimestepSampler{o}, Error);
  o = {};
  o.max_timestep = 1001;
  EXPECT_THROW(TimestepSampler{o}, Error);
  o = {};
  o.num_timestep_buckets = 1;
  EXPECT_THROW(TimestepSampler{o}, Error);
}

}  // namespace

}  // namespace flux2
