#include "pipeline/tensor_cache.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

Tensor floats(int64_t count) { return Tensor::host_empty(DType::F32, {count}); }

TEST(TensorCache, EvictsTheLeastRecentlyUsed) {
  TensorCache cache(4 * 30);
  cache.add("a", floats(10));
  cache.add("b", floats(10));
  cache.add("c", floats(10));
  EXPECT_EQ(cache.bytes(), 120);
  EXPECT_TRUE(cache.find("a").defined());
  cache.add("d", floats(5));
  EXPECT_TRUE(cache.contains("a"));
  EXPECT_FALSE(cache.contains("b"));
  EXPECT_TRUE(cache.contains("c"));
  EXPECT_EQ(cache.bytes(), 100);
  cache.add("e", floats(30));
  EXPECT_EQ(cache.size(), 1u) << "it needs all of the room";
  EXPECT_FALSE(cache.find("a").defined());
}

TEST(TensorCache, NeverHoldsMoreThanItsLimit) {
  TensorCache cache(100);
  cache.add("small", floats(20));
  cache.add("large", floats(26));
  EXPECT_FALSE(cache.contains("large")) << "104 bytes";
  EXPECT_TRUE(cache.contains("small"));
  cache.add("small", floats(25));
  EXPECT_EQ(cache.bytes(), 100) << "replaced, not counted twice";
  cache.set_limit(50);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace flux2
