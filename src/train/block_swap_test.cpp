#include "train/block_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace flux2 {
namespace {

std::pair<size_t, size_t> counts(int64_t n, int64_t doubles, int64_t singles) {
  const StreamedBlocks blocks = blocks_to_swap(n, doubles, singles);
  EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
  EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
  const auto d = static_cast<size_t>(
      std::count_if(blocks.begin(), blocks.end(), [&](size_t b) { return b < static_cast<size_t>(doubles); }));
  return {d, blocks.size() - d};
}

// The table of training.md 6.3.
TEST(BlockSwap, CountsAreThoseOfMusubiTuner) {
  using P = std::pair<size_t, size_t>;
  for (int n = 3; n <= 5; ++n) EXPECT_EQ(counts(n, 8, 48), P(1, 6)) << n;
  for (int n = 14; n <= 18; ++n) EXPECT_EQ(counts(n, 8, 48), P(4, 24)) << n;
  for (int n = 27; n <= 29; ++n) EXPECT_EQ(counts(n, 8, 48), P(6, 44)) << n;
  for (int n = 2; n <= 4; ++n) EXPECT_EQ(counts(n, 5, 20), P(1, 4)) << n;
  for (int n = 8; n <= 10; ++n) EXPECT_EQ(counts(n, 5, 20), P(3, 12)) << n;
  for (int n = 11; n <= 13; ++n) EXPECT_EQ(counts(n, 5, 20), P(3, 18)) << n;
  for (int n = 7; n <= 8; ++n) EXPECT_EQ(counts(n, 8, 24), P(3, 9)) << n;
  for (int n = 14; n <= 16; ++n) EXPECT_EQ(counts(n, 8, 24), P(6, 18)) << n;
  EXPECT_EQ(counts(0, 8, 24), P(0, 0));
}

TEST(BlockSwap, TheLargestNumberIsNamed) {
  const auto refusal = [](int64_t n, int64_t doubles, int64_t singles) {
    try {
      blocks_to_swap(n, doubles, singles);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(14, 5, 20), testing::HasSubstr("blocks_to_swap 14 is too large"));
  EXPECT_EQ(refusal(13, 5, 20), "accepted");
  EXPECT_THAT(refusal(30, 8, 48), testing::HasSubstr("too large"));
  EXPECT_THAT(refusal(17, 8, 24), testing::HasSubstr("too large"));
  EXPECT_THAT(refusal(-1, 8, 24), testing::HasSubstr("negative"));
}

TEST(BlockSwap, BlocksAreSpreadEvenly) {
  EXPECT_EQ(spread_blocks(2, 8), (StreamedBlocks{2, 6}));
  EXPECT_EQ(spread_blocks(4, 20), (StreamedBlocks{2, 7, 12, 17}));
  EXPECT_EQ(spread_blocks(3, 3), (StreamedBlocks{0, 1, 2}));
  EXPECT_EQ(spread_blocks(0, 3), StreamedBlocks());
}

}  // namespace
}  // namespace flux2
