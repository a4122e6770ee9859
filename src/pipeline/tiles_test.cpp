#include "pipeline/tiles.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Tiles, CoverTheGridAndOverlap) {
  for (int64_t rows : {1, 31, 32, 33, 64, 100, 256})
    for (int64_t side : {8, 32, 48}) {
      const auto tiles = tiles_of(rows, 40, side);
      std::vector<int> seen(static_cast<size_t>(rows * 40));
      for (const Tile& t : tiles) {
        EXPECT_LE(t.rows, side);
        for (int64_t r = t.row; r < t.row + t.rows; ++r)
          for (int64_t c = t.column; c < t.column + t.columns; ++c) ++seen.at(static_cast<size_t>(r * 40 + c));
      }
      for (int n : seen) ASSERT_GE(n, 1) << rows << " in tiles of " << side;
    }
  EXPECT_EQ(tiles_of(32, 32, 32).size(), 1u);
  EXPECT_THROW(tiles_of(32, 32, 4), Error);
  const auto two = tiles_of(60, 8, 32);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_GE(two[0].row + two[0].rows - two[1].row, kTileOverlap);
}

// Tiles cut from one picture give that picture back.
TEST(Tiles, JoinWithoutSeams) {
  const int64_t rows = 21, columns = 13;
  const auto value = [](int64_t c, int64_t y, int64_t x) {
    return std::sin(0.05f * static_cast<float>(x)) + 0.01f * static_cast<float>(y) + static_cast<float>(c);
  };
  const auto tiles = tiles_of(rows, columns, 9);
  EXPECT_GT(tiles.size(), 4u);
  const Planes joined = join_tiles(rows, columns, tiles, [&](const Tile& t) {
    Planes part{static_cast<int>(16 * t.columns), static_cast<int>(16 * t.rows), {}};
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < part.height; ++y)
        for (int64_t x = 0; x < part.width; ++x) part.values.push_back(value(c, 16 * t.row + y, 16 * t.column + x));
    return part;
  });
  ASSERT_EQ(joined.width, 16 * columns);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < joined.height; ++y)
      for (int64_t x = 0; x < joined.width; ++x)
        ASSERT_NEAR(joined.values[static_cast<size_t>((c * joined.height + y) * joined.width + x)], value(c, y, x), 1e-5)
            << c << y << x;
}

// Tokens cut from one grid give that grid back.
TEST(Tiles, TokensJoinWithoutSeams) {
  const int64_t rows = 21, columns = 13, channels = 3;
  const auto value = [](int64_t y, int64_t x, int64_t c) {
    return std::sin(0.3f * static_cast<float>(x)) + 0.1f * static_cast<float>(y) + static_cast<float>(c);
  };
  const auto joined = join_token_tiles(rows, columns, channels, tiles_of(rows, columns, 9), [&](const Tile& t) {
    std::vector<float> part;
    for (int64_t y = 0; y < t.rows; ++y)
      for (int64_t x = 0; x < t.columns; ++x)
        for (int64_t c = 0; c < channels; ++c) part.push_back(value(t.row + y, t.column + x, c));
    return part;
  });
  ASSERT_EQ(joined.size(), static_cast<size_t>(rows * columns * channels));
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x)
      for (int64_t c = 0; c < channels; ++c)
        ASSERT_NEAR(joined[static_cast<size_t>((y * columns + x) * channels + c)], value(y, x, c), 1e-5);
}

}  // namespace
}  // namespace flux2
