#include "hub/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(Variants, AreFoundInAnySpelling) {
  for (const char* name :
       {"flux.2-klein-base-9b", "FLUX.2-klein-base-9B", "flux2-klein-base-9b", "klein-base-9b", "klein_base_9B"}) {
    const auto v = find_variant(name);
    ASSERT_TRUE(v) << name;
    EXPECT_EQ(v->id, "flux.2-klein-base-9b");
  }
  EXPECT_EQ(find_variant("dev")->id, "flux.2-dev");
  EXPECT_EQ(find_variant("klein-9b-kv")->id, "flux.2-klein-9b-kv");
  EXPECT_FALSE(find_variant("klein"));
  EXPECT_FALSE(find_variant(""));
}

TEST(Variants, CarryTheDefaultsOfThePublishedModels) {
  const Variant distilled = *find_variant("klein-4b"), base = *find_variant("klein-base-4b"), dev = *find_variant("dev");
  EXPECT_EQ(distilled.config, base.config);
  EXPECT_EQ(distilled.defaults.steps, 4);
  EXPECT_EQ(distilled.defaults.guidance, 1.0);
  EXPECT_EQ(distilled.defaults.guidance_kind, ModelDefaults::None);
  EXPECT_EQ(base.defaults.steps, 50);
  EXPECT_EQ(base.defaults.guidance_kind, ModelDefaults::TrueCfg);
  EXPECT_EQ(dev.defaults.guidance_kind, ModelDefaults::Embedded);
  EXPECT_THAT(dev.defaults.text_layers, testing::ElementsAre(10, 20, 30));
  EXPECT_TRUE(find_variant("klein-9b-kv")->kv);
  for (const Variant& v : variants()) EXPECT_EQ(v.config.text_width % 3, 0) << v.id;
}

TEST(Variants, ClosestNamesComeFirst) {
  EXPECT_EQ(closest_variants("flux.2-klein-4")[0], "flux.2-klein-4b");
  EXPECT_EQ(closest_variants("klien-9b")[0], "flux.2-klein-9b");
  EXPECT_EQ(closest_variants("anything").size(), 3u);
  EXPECT_EQ(closest_variants(std::string(100000, 'x'), 2).size(), 2u);
}

}  // namespace
}  // namespace flux2
