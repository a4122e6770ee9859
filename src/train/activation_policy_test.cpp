#include "train/activation_policy.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

int64_t toy_bytes(const std::vector<BlockMemory>& memory) {
  int64_t bytes = 100;
  for (const BlockMemory& m : memory) bytes += !m.recompute ? 50 : m.keep_attention ? 12 : 6;
  return bytes;
}

TEST(ActivationPolicy, IsWhatTheOptionsSay) {
  TrainOptions o;
  EXPECT_EQ(activation_policy_of(o), ActivationPolicy::P0);
  o.gradient_checkpointing = true;
  EXPECT_EQ(activation_policy_of(o), ActivationPolicy::P1);
  o.activation_policy = "p2";
  EXPECT_EQ(activation_policy_of(o), ActivationPolicy::P2);
  o.activation_policy = "auto";
  EXPECT_EQ(activation_policy_of(o), std::nullopt);
}

TEST(ActivationPolicy, AutoTakesWhatFits) {
  const auto chosen = [](int64_t room) { return choose_activations(10, room, toy_bytes); };
  EXPECT_EQ(chosen(1000).str(), "10 blocks keep everything");
  EXPECT_EQ(chosen(600).str(), "10 blocks keep everything");
  EXPECT_EQ(chosen(599).str(), "9 blocks keep everything, 1 keep their input and attention");
  EXPECT_EQ(chosen(220).str(), "10 blocks keep their input and attention");
  EXPECT_EQ(chosen(219).str(), "9 blocks keep their input and attention, 1 keep only their input");
  EXPECT_EQ(chosen(160).str(), "10 blocks keep only their input");
  EXPECT_EQ(chosen(10).str(), "10 blocks keep only their input");
  EXPECT_EQ(chosen(10).bytes, 160);
  EXPECT_LE(chosen(300).bytes, 300);
  EXPECT_TRUE(chosen(599).memory.front().recompute);
  EXPECT_FALSE(chosen(599).memory.back().recompute);
}

TEST(ActivationPolicy, StreamedBlocksAreRecomputed) {
  const auto chosen = choose_activations(4, 1000, toy_bytes, [](size_t block) { return block % 2 == 1; });
  EXPECT_EQ(chosen.str(), "2 blocks keep everything, 2 keep their input and attention");
}

}  // namespace
}  // namespace flux2
