#include "pipeline/rope_cache.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "pipeline/latents.h"

namespace flux2 {
namespace {

TEST(RopeCache, KeepsTheTablesThatWereUsedLast) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  RopeCache cache;
  const auto table = [&](int rows) { return cache.rope_for(*stream, picture_positions(rows, 2)); };
  const Rope first = table(1);
  EXPECT_EQ(first.cosine.to_floats(), flux2_rope(*stream, picture_positions(1, 2)).cosine.to_floats());
  for (const int rows : {2, 3, 4}) {
    EXPECT_NE(table(rows).cosine.raw(), first.cosine.raw());
    EXPECT_EQ(table(1).sine.raw(), first.sine.raw()) << "used in between";
  }
  for (const int rows : {5, 6, 7, 8}) table(rows);
  EXPECT_NE(table(1).cosine.raw(), first.cosine.raw()) << "four others were used since";
}

TEST(RopeCache, TellsPositionsApart) {
  const auto stream = open_cpu({.threads = 1})->open_stream();
  RopeCache cache;
  const Rope a = cache.rope_for(*stream, picture_positions(2, 2)), b = cache.rope_for(*stream, picture_positions(2, 2, 10));
  EXPECT_NE(a.cosine.to_floats(), b.cosine.to_floats());
  const auto other = open_cpu({.threads = 1})->open_stream();
  EXPECT_EQ(&cache.rope_for(*other, picture_positions(2, 2)).cosine.stream(), other.get());
}

}  // namespace
}  // namespace flux2
