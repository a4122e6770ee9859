#include "train/data/cache_model.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(CacheModel, PublishedModelsHaveTheNamesOfMusubiTuner) {
  EXPECT_EQ(cache_model({6144, 8, 48, 15360, 512}), (CacheModel{"f2d", "flux_2_dev", 512, 15360}));
  EXPECT_EQ(cache_model({3072, 5, 20, 7680, 512}), (CacheModel{"f2k4b", "flux_2_klein_4b", 512, 7680}));
  EXPECT_EQ(cache_model({4096, 8, 24, 12288, 512}), (CacheModel{"f2k9b", "flux_2_klein_9b", 512, 12288}));
}

TEST(CacheModel, OtherSizesAreNamedByTheirHash) {
  EXPECT_EQ(cache_model({256, 2, 5, 384, 64}), (CacheModel{"f2x572ee0", "flux_2_custom_572ee0", 64, 384}));  // pico
  EXPECT_NE(cache_model({256, 2, 5, 384, 128}).suffix, "f2x572ee0");
}

}  // namespace
}  // namespace flux2
