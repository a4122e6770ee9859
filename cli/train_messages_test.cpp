#include "cli/train_messages.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(TrainMessages, NameOptionsAsTheCommandLineDoes) {
  EXPECT_EQ(with_option_names("max_train_steps must be at least 1, not 0"), "--max_train_steps must be at least 1, not 0");
  EXPECT_EQ(with_option_names("preset: \"x\" is not one of: style, edit"), "--preset: \"x\" is not one of: style, edit");
  EXPECT_EQ(with_option_names("fused_backward_pass needs full: the gradients are small"),
            "--fused_backward_pass needs --full: the gradients are small");
  EXPECT_EQ(with_option_names("vae_crop needs train vae"), "--vae_crop needs --train vae");
  EXPECT_EQ(with_option_names("fp8_scaled needs fp8_base"), "--fp8_scaled needs --fp8_base");
  EXPECT_EQ(with_option_names("blocks_to_swap 100 is too large"), "--blocks_to_swap 100 is too large");
  EXPECT_EQ(with_option_names("full_bf16, freeze and decay_all need full"), "--full_bf16, --freeze and --decay_all need --full");
  EXPECT_EQ(with_option_names("kind image_prompt trains an adapter; it cannot be combined with full or train"),
            "--kind image_prompt trains an adapter; it cannot be combined with --full or --train");
  // What does not begin with an option is about something else.
  EXPECT_EQ(with_option_names("data.toml: resume_from_huggingface is unknown"), "data.toml: resume_from_huggingface is unknown");
  EXPECT_EQ(with_option_names("training needs a dataset file"), "training needs a dataset file");
  EXPECT_EQ(with_option_names(""), "");
}

}  // namespace
}  // namespace flux2
