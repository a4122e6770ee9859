#include "record/a1111_text.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

GenerationRecord example() {
  GenerationRecord r;
  r.request.prompt = "a fox, red: \"quick\"\nsecond line";
  r.request.negative = "blurry, dark";
  r.model = "flux.2-klein-base-4b";
  r.model_sha256 = "0123456789abcdef";
  r.request.width = 1024, r.request.height = 768, r.request.steps = 50;
  r.request.cfg = 4.5;
  r.request.seed = 9223372036854775807;
  r.request.sampler = "euler";
  r.request.schedule = "sigmas:1,0.5";
  r.request.noise = "torch-cuda:132x2048";
  r.request.profile = "exact";
  return r;
}

TEST(A1111Text, HasTheUsualForm) {
  GenerationRecord r = example();
  r.app = "flux2.cpp 0.1.0";
  EXPECT_EQ(to_a1111(r),
            "a fox, red: \"quick\"\nsecond line\nNegative prompt: blurry, dark\n"
            "Steps: 50, Sampler: Euler, Schedule type: \"sigmas:1,0.5\", CFG scale: 4.5, Seed: 9223372036854775807, "
            "Size: 1024x768, Model hash: 0123456789, Model: flux.2-klein-base-4b, RNG: \"torch-cuda:132x2048\", "
            "Profile: exact, Version: flux2.cpp 0.1.0");
  r.embedded_guidance = true;
  r.request.guidance = 3.5;
  EXPECT_NE(to_a1111(r).find("CFG scale: 4.5, Distilled CFG Scale: 3.5, Seed"), std::string::npos);
}

TEST(A1111Text, RoundTrips) {
  const GenerationRecord r = example(), back = record_from_a1111(parse_a1111(to_a1111(r)));
  EXPECT_EQ(back.request.prompt, r.request.prompt);
  EXPECT_EQ(back.request.negative, r.request.negative);
  EXPECT_EQ(back.request.steps, r.request.steps);
  EXPECT_EQ(back.request.seed, r.request.seed);
  EXPECT_EQ(back.request.width, r.request.width);
  EXPECT_EQ(back.request.height, r.request.height);
  EXPECT_EQ(back.request.cfg, r.request.cfg);
  EXPECT_EQ(back.request.schedule, r.request.schedule);
  EXPECT_EQ(back.request.noise, r.request.noise);
  EXPECT_EQ(back.model, r.model);
  EXPECT_EQ(back.request.profile, r.request.profile);
}

TEST(A1111Text, PrivateTextContainsNoNames) {
  const std::string text = to_a1111(example(), true);
  EXPECT_EQ(text.find("fox"), std::string::npos);
  EXPECT_EQ(text.find("blurry"), std::string::npos);
  EXPECT_EQ(text.find("klein"), std::string::npos);
  EXPECT_NE(text.find("Model hash: 0123456789"), std::string::npos);
}

TEST(A1111Text, ReadsTextOfOtherPrograms) {
  const A1111Text text = parse_a1111(
      "masterpiece, a cat\nNegative prompt: bad\nSteps: 20, Sampler: DPM++ 2M, CFG scale: 7, Seed: 1, Size: 512x512, "
      "Lora hashes: \"x: abc, y: def\", Version: v1.9");
  EXPECT_EQ(text.prompt, "masterpiece, a cat");
  EXPECT_EQ(text.negative, "bad");
  ASSERT_NE(text.find("Lora hashes"), nullptr);
  EXPECT_EQ(*text.find("Lora hashes"), "x: abc, y: def");
  EXPECT_EQ(*text.find("Version"), "v1.9");
}

TEST(A1111Text, TextWithoutSettingsIsAPrompt) {
  EXPECT_EQ(parse_a1111("just: words").prompt, "just: words");
  EXPECT_TRUE(parse_a1111("just: words").pairs.empty());
  EXPECT_EQ(parse_a1111("").prompt, "");
  EXPECT_EQ(parse_a1111("Steps: \"unclosed").prompt, "");
}

}  // namespace
}  // namespace flux2
