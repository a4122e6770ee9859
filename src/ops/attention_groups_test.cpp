#include "ops/attention_groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "base/rng.h"
#include "ops/attention.h"

namespace flux2 {
namespace {

// Softmax over all pairs of rows, with −∞ where a key is hidden; in double.
std::vector<double> dense(const Tensor& q, const Tensor& k, const Tensor& v, const RowClasses& classes) {
  const int64_t batch = q.dim(0), queries = q.dim(1), keys = k.dim(1), heads = q.dim(2), width = q.dim(3);
  const auto qs = q.to_doubles(), ks = k.to_doubles(), vs = v.to_doubles();
  const auto at = [&](const std::vector<double>& x, int64_t rows, int64_t b, int64_t s, int64_t h) {
    return x.data() + ((b * rows + s) * heads + h) * width;
  };
  std::vector<double> y;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < queries; ++s)
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t t = 0; t < keys; ++t) {
          const auto a = static_cast<size_t>(classes.of_row[static_cast<size_t>(s)]);
          const auto c = static_cast<size_t>(classes.of_row[static_cast<size_t>(t)]);
          double score = -INFINITY;
          if (classes.sees[a][c]) {
            score = 0;
            for (int64_t d = 0; d < width; ++d) score += at(qs, queries, b, s, h)[d] * at(ks, keys, b, t, h)[d];
            score /= std::sqrt(static_cast<double>(width));
          }
          weights.push_back(std::exp(score));
          sum += weights.back();
        }
        for (int64_t d = 0; d < width; ++d) {
          double value = 0;
          for (int64_t t = 0; t < keys; ++t) value += weights[static_cast<size_t>(t)] * at(vs, keys, b, t, h)[d] / sum;
          y.push_back(value);
        }
      }
  return y;
}

class AttentionGroupsTest : public testing::Test {
 protected:
  Tensor random(const Shape& shape, uint64_t seed) const {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(philox(seed, i, 0)[0] * 0x1p-31 - 1.0);
    return Tensor::from<float>(*stream, DType::F32, shape, values);
  }

  // Some classes that see some classes, each at least itself; rows in random order.
  static RowClasses random_classes(int64_t rows, int count, uint64_t seed) {
    RowClasses classes;
    for (int64_t i = 0; i < rows; ++i)
      classes.of_row.push_back(static_cast<int>(philox(seed, static_cast<uint64_t>(i), 1)[0] % static_cast<uint32_t>(count)));
    for (int a = 0; a < count; ++a) {
      auto& line = classes.sees.emplace_back();
      for (int b = 0; b < count; ++b) line.push_back(a == b || philox(seed, static_cast<uint64_t>(a * count + b), 2)[0] % 2 == 0);
    }
    return classes;
  }

  // The largest difference, relative to the largest value.
  double error(const RowClasses& classes, int64_t queries, int64_t batch, uint64_t seed) const {
    const auto rows = static_cast<int64_t>(classes.of_row.size());
    const Tensor q = random({batch, queries, 2, 16}, seed), k = random({batch, rows, 2, 16}, seed + 1),
                 v = random({batch, rows, 2, 16}, seed + 2);
    const AttentionGroups groups = group_rows(*stream, classes, queries);
    const auto ours = attention(q, k, v, {.key_mask = {}, .groups = &groups}).to_doubles();
    const auto expected = dense(q, k, v, classes);
    double worst = 0, largest = 0;
    EXPECT_EQ(ours.size(), expected.size());
    for (size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(ours[i] - expected[i])), largest = std::max(largest, std::abs(expected[i]));
    return worst / largest;
  }

  std::shared_ptr<Stream> stream = open_cpu({.profile = Profile::Exact})->open_stream();
};

TEST_F(AttentionGroupsTest, EqualsDenseMaskedSoftmax) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto rows = static_cast<int64_t>(5 + 7 * seed);
    const RowClasses classes = random_classes(rows, 1 + static_cast<int>(seed % 5), seed);
    EXPECT_LE(error(classes, rows, 1 + static_cast<int64_t>(seed % 2), seed), 1e-6) << seed;
    EXPECT_LE(error(classes, rows / 2, 1, seed), 1e-6) << seed << ", with keys of other tokens";
  }
}

// Groups of one size whose rows lie together are one batch of views; other groups of one size are one batch of copies.
TEST_F(AttentionGroupsTest, GroupsOfOneSizeAreOneBatch) {
  RowClasses blocks{.of_row = {0, 0, 0, 1, 1, 1, 2, 2, 2},
                    .sees = {{true, false, false}, {false, true, false}, {false, false, true}}};
  AttentionGroups groups = group_rows(*stream, blocks, 9);
  ASSERT_EQ(groups.batches.size(), 1u);
  EXPECT_EQ(groups.layout(), "9x9 3*3@0:3@0");
  EXPECT_EQ(groups.visible_pairs(), 27);
  EXPECT_LE(error(blocks, 9, 2, 7), 1e-6);

  blocks.of_row = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  groups = group_rows(*stream, blocks, 9);
  EXPECT_EQ(groups.layout(), "9x9 3*3@ids:3@ids");
  EXPECT_TRUE(groups.results.defined());
  EXPECT_LE(error(blocks, 9, 2, 8), 1e-6);

  // Equal sizes with something between: two views rather than one copy.
  blocks.of_row = {0, 0, 0, 2, 1, 1, 1};
  groups = group_rows(*stream, blocks, 7);
  EXPECT_EQ(groups.layout(), "7x7 1*3@0:3@0 1*1@3:1@3 1*3@4:3@4");
  EXPECT_FALSE(groups.results.defined());
  EXPECT_LE(error(blocks, 7, 2, 9), 1e-6);
}

TEST_F(AttentionGroupsTest, RowsThatSeeNothingAreABug) {
  const RowClasses blind{.of_row = {0, 1}, .sees = {{true, true}, {false, false}}};
  EXPECT_THROW(group_rows(*stream, blind, 2), Error);
  EXPECT_NO_THROW(group_rows(*stream, blind, 1));  // they are keys alone
}

TEST_F(AttentionGroupsTest, TakesRows) {
  const Tensor x = Tensor::from<float>(*stream, DType::F32, {2, 3, 2}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor ids = Tensor::from<int32_t>(*stream, DType::I32, {2}, std::vector<int32_t>{2, 0});
  EXPECT_EQ(take_rows(x, ids).to_floats(), (std::vector<float>{4, 5, 0, 1, 10, 11, 6, 7}));
}

}  // namespace
}  // namespace flux2
