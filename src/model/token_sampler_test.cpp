#include "model/token_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using testing::ElementsAre;

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<int32_t> ids(const std::vector<TokenChance>& chances) {
  std::vector<int32_t> list;
  for (const TokenChance& c : chances) list.push_back(c.id);
  return list;
}

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> scores;
  for (const double p : probabilities) scores.push_back(p > 0 ? static_cast<float>(std::log(p)) : kNone);
  return scores;
}

TEST(TokenSampler, TemperatureZeroTakesTheHighestAndOfTiesTheFirst) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{kNone, -5, NAN}, {}, {.temperature = 0}, 0), 1);
}

TEST(TokenSampler, TemperatureDividesScores) {
  // exp(0), exp(1) with temperature 0.5 of scores 0 and 0.5.
  const auto chances = token_chances(std::vector<float>{0, 0.5f}, {}, {.temperature = 0.5});
  EXPECT_NEAR(chances[1].probability, std::exp(1) / (1 + std::exp(1)), 1e-12);
}

TEST(TokenSampler, TopKKeepsTiesWithTheLast) {
  const std::vector<float> scores = {3, 1, 2, 2, 0};
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_k = 1})), ElementsAre(0));
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_k = 2})), ElementsAre(0, 2, 3));
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_k = 0})), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_k = 99})), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TokenSampler, TopKAgreesWithSortingInALargeVocabulary) {
  std::vector<float> scores;
  for (uint32_t i = 0, state = 1; i < 20'000; ++i) {
    state = state * 1664525 + 1013904223;
    scores.push_back(static_cast<float>(state >> 20) / 256);  // 4096 values, so that there are ties
  }
  scores[7] = NAN;
  std::vector<float> sorted = scores;
  sorted[7] = kNone;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (const int64_t k : {1, 20, 50, 5000}) {
    const float least = sorted[static_cast<size_t>(k) - 1];
    std::vector<int32_t> expected;
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] >= least) expected.push_back(static_cast<int32_t>(i));
    EXPECT_EQ(ids(token_chances(scores, {}, {.top_k = k})), expected) << k;
  }
}

TEST(TokenSampler, TopPDropsTheLeastLikely) {
  const auto scores = logs({0.5, 0.05, 0.25, 0.2});
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_p = 0.9})), ElementsAre(0, 2, 3)) << "0.05 is at most 0.1";
  EXPECT_THAT(ids(token_chances(scores, {}, {.top_p = 0.7})), ElementsAre(0, 2)) << "0.05 + 0.2 are at most 0.3";
  const auto one = token_chances(scores, {}, {.top_p = 0});
  EXPECT_THAT(ids(one), ElementsAre(0)) << "the most likely one always stays";
  EXPECT_EQ(one[0].probability, 1);
}

TEST(TokenSampler, MinPDependsOnTheMostLikely) {
  const auto scores = logs({0.5, 0.04, 0.25, 0.21});
  EXPECT_THAT(ids(token_chances(scores, {}, {.min_p = 0.1})), ElementsAre(0, 2, 3));
  EXPECT_THAT(ids(token_chances(scores, {}, {.min_p = 1})), ElementsAre(0));
}

TEST(TokenSampler, RepetitionPenaltyCountsATokenOnce) {
  const std::vector<float> scores = {2, -2, 1};
  const std::vector<int32_t> before = {0, 0, 1, 77, -1};
  EXPECT_EQ(sample_token(scores, before, {.repetition_penalty = 4, .temperature = 0}, 0), 2) << "0.5, -8 and 1";
}

TEST(TokenSampler, DrawsAreAsLikelyAsTheySay) {
  const auto scores = logs({0.5, 0, 0.3, 0.2});
  std::map<int32_t, int> counts;
  for (uint64_t position = 0; position < 20000; ++position) ++counts[sample_token(scores, {}, {.seed = 3}, position)];
  EXPECT_NEAR(counts[0], 10000, 300);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], 6000, 300);
  EXPECT_NEAR(counts[3], 4000, 300);
  EXPECT_EQ(sample_token(scores, {}, {.seed = 3}, 5), sample_token(scores, {}, {.seed = 3}, 5));
}

TEST(TokenSampler, RefusesScoresWithoutANumber) {
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_THROW(token_chances(std::vector<float>{NAN, NAN}, {}, {.temperature = temperature}), Error);
    EXPECT_THROW(token_chances(std::vector<float>{kNone, kNone}, {}, {.temperature = temperature}), Error);
  }
}

// tests/parity/language_golden.py made the file with the processors of transformers, in the order of its generation.
TEST(TokenSampler, AgreesWithTransformers) {
  const Json cases = read_json(test::golden_folder() / "sampling.json");
  ASSERT_GT(cases.size(), 20u);
  for (const Json& c : cases) {
    const TokenSampling how{.repetition_penalty = c["repetition_penalty"],
                            .temperature = c["temperature"],
                            .top_k = c["top_k"],
                            .top_p = c["top_p"],
                            .min_p = c["min_p"]};
    const auto scores = c["scores"].get<std::vector<float>>();
    const auto expected = c["probabilities"].get<std::vector<double>>();
    std::vector<double> got(expected.size());
    for (const TokenChance& chance : token_chances(scores, c["before"].get<std::vector<int32_t>>(), how))
      got[static_cast<size_t>(chance.id)] = chance.probability;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << c.dump();
  }
}

}  // namespace
}  // namespace flux2
