#include "train/optimiser/optimiser_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {

namespace {

TEST(OptimiserNames, AnyCaseWithOrWithoutModule) {
  EXPECT_EQ(optimiser_named(""), OptimiserKind::AdamW);
  for (const char* name : {"adamw", "AdamW", "torch.optim.AdamW"}) EXPECT_EQ(optimiser_named(name), OptimiserKind::AdamW) << name;
  for (const char* name :
       {"adamw8bit", "AdamW8bit", "bitsandbytes.optim.AdamW8bit", "bitsandbytes.optim.PagedAdamW8bit", "PagedAdamW8bit"})
    EXPECT_EQ(optimiser_named(name), OptimiserKind::AdamW8bit) << name;
  EXPECT_EQ(optimiser_named("lion_pytorch.Lion"), OptimiserKind::Lion);
  EXPECT_EQ(optimiser_named("bitsandbytes.optim.Lion8bit"), OptimiserKind::Lion8bit);
  EXPECT_EQ(optimiser_named("transformers.optimization.Adafactor"), OptimiserKind::Adafactor);
  EXPECT_EQ(optimiser_named("prodigyopt.Prodigy"), OptimiserKind::Prodigy);
  EXPECT_EQ(optimiser_named("schedulefree.AdamWScheduleFree"), OptimiserKind::ScheduleFree);
  EXPECT_EQ(optimiser_named("adamwschedulefree"), OptimiserKind::ScheduleFree);
  EXPECT_EQ(optimiser_named("ademamix"), OptimiserKind::AdEmaMix);
  EXPECT_EQ(optimiser_named("bitsandbytes.optim.PagedAdEMAMix8bit"), OptimiserKind::AdEmaMix8bit);
  EXPECT_EQ(optimiser_named("came_pytorch.CAME"), OptimiserKind::Came);
  EXPECT_EQ(optimiser_named("torch.optim.SGD"), OptimiserKind::Sgd);
}

TEST(OptimiserNames, OthersAreErrorsWithTheNearest) {
  for (const auto& [name, nearest] :
       {std::pair{"adamschedulefree", "adamwschedulefree"}, {"adam8bit", "adamw8bit"}, {"came.Lion", "lion"}, {"foo", ""}}) {
    try {
      optimiser_named(name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(name));
      EXPECT_THAT(e.what(), testing::HasSubstr("is not one of: adamw, "));
      if (*nearest) EXPECT_EQ(e.hint().suggestions.at(0), set_option("optimizer_type", nearest));
      else EXPECT_TRUE(e.hint().empty()) << e.hint().plain();
    }
  }
}

TEST(OptimiserNames, MetadataNameTheClassAndItsArguments) {
  EXPECT_EQ(optimiser_text("adamw8bit", {}), "bitsandbytes.optim.adamw.AdamW8bit");
  EXPECT_EQ(optimiser_text("AdamW", {"weight_decay=0.1", "betas=0.9,0.99", "eps=1e-8"}),
            "torch.optim.adamw.AdamW(weight_decay=0.1,betas=(0.9, 0.99),eps=1e-08)");
  EXPECT_EQ(optimiser_text("adafactor", {"scale_parameter=False"}),
            "transformers.optimization.Adafactor(scale_parameter=False,relative_step=True)");
}

TEST(OptimiserNames, SchedulesAndWarnings) {
  EXPECT_TRUE(chooses_its_rate("adafactor", {}));
  EXPECT_FALSE(chooses_its_rate("adafactor", {"relative_step=False"}));
  EXPECT_TRUE(chooses_its_rate("adafactor", {"relative_step=False", "warmup_init=True"}));
  EXPECT_FALSE(chooses_its_rate("adamw", {}));
  EXPECT_FALSE(takes_schedule("schedulefree.AdamWScheduleFree"));
  EXPECT_TRUE(takes_schedule("lion"));
  EXPECT_TRUE(optimiser_warnings("adamw", {}, "cosine", 1).empty());
  EXPECT_TRUE(optimiser_warnings("adafactor", {"relative_step=False"}, "constant_with_warmup", 0).empty());
  EXPECT_EQ(optimiser_warnings("adafactor", {"relative_step=False"}, "cosine", 1).size(), 2u);
  EXPECT_EQ(optimiser_warnings("adafactor", {}, "adafactor", 1).size(), 1u);
}

}  // namespace

}  // namespace flux2
