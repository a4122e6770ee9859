#include "engine/placement.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

const NetworkBytes kEncoder{10, std::vector<int64_t>(9, 10)};       // 100
const NetworkBytes kTransformer{20, {40, 40, 20, 20, 20, 20, 20}};  // 200

TEST(Placement, KeepsEverythingThatFits) {
  const Placement p = choose_placement(kEncoder, kTransformer, 50, 350, Offload::Auto);
  EXPECT_FALSE(p.encoder_leaves);
  EXPECT_EQ(p.transformer_blocks, 7u);
  EXPECT_EQ(p.peak, 350);
  EXPECT_TRUE(p.fits);
}

TEST(Placement, UnloadsTheEncoderFirst) {
  const Placement p = choose_placement(kEncoder, kTransformer, 50, 349, Offload::Auto);
  EXPECT_TRUE(p.encoder_leaves);
  EXPECT_EQ(p.transformer_blocks, 7u);
  EXPECT_EQ(p.peak, 250);
}

TEST(Placement, ThenStreamsBlocks) {
  // 150 for weights: 20 outside, the two large blocks, and two slots of 20 leave 10: no further block.
  const Placement p = choose_placement(kEncoder, kTransformer, 50, 200, Offload::Auto);
  EXPECT_TRUE(p.encoder_leaves);
  EXPECT_EQ(p.transformer_blocks, 2u);
  EXPECT_EQ(p.peak, 190);
  EXPECT_EQ(p.encoder_blocks, 9u);
  EXPECT_NE(p.str(kTransformer).find("2 of the transformer's 7 blocks"), std::string::npos);
}

TEST(Placement, ReportsIfNothingFits) {
  const Placement p = choose_placement(kEncoder, kTransformer, 50, 100, Offload::Auto);
  EXPECT_EQ(p.transformer_blocks, 0u);
  EXPECT_FALSE(p.fits);
  EXPECT_FALSE(choose_placement(kEncoder, kTransformer, 50, 200, Offload::None).fits);
}

TEST(Placement, FollowsExplicitSettings) {
  EXPECT_TRUE(choose_placement(kEncoder, kTransformer, 50, 1000, Offload::Encoder).encoder_leaves);
  const Placement streamed = choose_placement(kEncoder, kTransformer, 50, 1000, Offload::Stream);
  EXPECT_EQ(streamed.transformer_blocks, 0u);
  EXPECT_EQ(streamed.peak, 150);  // 20 + 2 · 40, or the encoder's 100
  const Placement swapped = choose_placement(kEncoder, kTransformer, 50, 1000, Offload::Auto, true, 3);
  EXPECT_EQ(swapped.transformer_blocks, 4u);
  EXPECT_EQ(swapped.peak, 330);  // 100 of the encoder; 20 + 40 + 40 + 20 + 20 and two slots of 20; 50
  EXPECT_EQ(choose_placement(kEncoder, kTransformer, 50, 1000, Offload::Auto, true, 99).transformer_blocks, 0u);
  EXPECT_EQ(choose_placement(kEncoder, kTransformer, 50, 200, Offload::Auto, true, 1).transformer_blocks, 2u);
  EXPECT_EQ(choose_placement(kEncoder, kTransformer, 50, 1000, Offload::Auto, false, 3).transformer_blocks, 7u);
  EXPECT_THROW(offload_named("some"), Error);
  for (const std::string& name : offload_names()) EXPECT_EQ(name_of(offload_named(name)), name);
}

TEST(Placement, AnyBlocksCanShareTheTwoBuffers) {
  const NetworkBytes network{.outside = 10, .blocks = {5, 7, 3}};
  EXPECT_EQ(network.with_streamed({}), 25);
  EXPECT_EQ(network.with_streamed({1}), 25);     // one buffer, as large as the block
  EXPECT_EQ(network.with_streamed({0, 2}), 27);  // two buffers of the larger block
  EXPECT_EQ(network.with_streamed({0, 1, 2}), 24);
}

}  // namespace
}  // namespace flux2
