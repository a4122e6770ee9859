#include "pipeline/image_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "pipeline/latents.h"
#include "pipeline/texts_to_images.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

constexpr int64_t kWidth = 8, kHidden = 128, kTokens = 3;

std::shared_ptr<const ImagePromptNetwork> random_adapter(ImagePromptForm form, Stream& stream) {
  ImagePromptNetwork network({.feature_width = kWidth,
                              .hidden = kHidden,
                              .tokens = kTokens,
                              .double_blocks = form == ImagePromptForm::Decoupled ? 2 : 0,
                              .form = form});
  int seed = 0;
  network.visit([&](const Parameter& p) {
    std::vector<float> values(static_cast<size_t>(p.shape.numel()));
    for (float& v : values) v = std::sin(static_cast<float>(++seed));
    p.tensor = Tensor::from<float>(stream, DType::F32, p.shape, values);
  });
  return std::make_shared<const ImagePromptNetwork>(std::move(network));
}

class ImagePromptsOfARequest : public testing::Test {
 protected:
  void use(ImagePromptForm form) { session.image_prompt = random_adapter(form, *session.stream); }

  Request with(const std::vector<ImagePrompt>& prompts) const {
    Request request;
    request.steps = 4;
    request.image_prompts = prompts;
    for (ImagePrompt& prompt : request.image_prompts) prompt.feature.assign(static_cast<size_t>(kWidth), 0.5f);
    return request;
  }

  std::string failure_of(const Request& request) const {
    try {
      check_image_prompts(request, session.image_prompt.get());
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  std::shared_ptr<Device> device = open_cpu({.threads = 1});
  Session session = [this] {
    Session s;
    s.stream = device->open_stream();
    return s;
  }();
};

TEST_F(ImagePromptsOfARequest, CountInTheirSteps) {
  use(ImagePromptForm::Tokens);
  // Of 4 steps: all; the first two; from the second to the third.
  ImagePrompts prompts(session, with({{.strength = 1}, {.strength = 1, .to = 0.5}, {.strength = 1, .from = 0.3, .to = 0.6}}), 2);
  std::vector<int64_t> rows;
  for (size_t step = 0; step < 4; ++step) rows.push_back(prompts.at(step)->tokens.dim(1));
  EXPECT_EQ(rows, (std::vector<int64_t>{2 * kTokens, 3 * kTokens, 2 * kTokens, kTokens}));
  EXPECT_EQ(prompts.at(3)->tokens.dim(0), 2);
  EXPECT_EQ(prompts.at(3), prompts.at(3));
}

TEST_F(ImagePromptsOfARequest, AStepWithoutThemGetsNothing) {
  use(ImagePromptForm::Decoupled);
  ImagePrompts prompts(session, with({{.strength = 1, .from = 0.5}}), 1);
  EXPECT_EQ(prompts.at(0), nullptr);
  ASSERT_NE(prompts.at(2), nullptr);
  EXPECT_EQ(prompts.at(2)->keys.size(), 1u);
  EXPECT_EQ(prompts.at(2)->keys[0].size(), 2u);
  EXPECT_TRUE(prompts.positions(prompts.at(2).get()).empty());
}

TEST_F(ImagePromptsOfARequest, StrengthScalesTokensOrValues) {
  for (const auto form : {ImagePromptForm::Tokens, ImagePromptForm::Decoupled}) {
    use(form);
    const auto values = [&](double strength) {
      const auto inputs = ImagePrompts(session, with({{.strength = strength}}), 1).at(0);
      return form == ImagePromptForm::Tokens ? inputs->tokens.to_floats() : inputs->keys[0][1].v.to_floats();
    };
    const auto whole = values(1), half = values(0.5);
    ASSERT_EQ(whole.size(), half.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_FLOAT_EQ(half[i], whole[i] / 2);
  }
}

TEST_F(ImagePromptsOfARequest, StrengthZeroIsNone) {
  EXPECT_EQ(failure_of(with({{.strength = 0}})), "");  // not even an adapter is needed
  ImagePrompts prompts(session, with({{.strength = 0}}), 1);
  EXPECT_TRUE(prompts.empty());
  EXPECT_EQ(prompts.at(0), nullptr);
  EXPECT_EQ(image_prompt_tokens(with({{.strength = 0}}), nullptr), 0);
}

TEST_F(ImagePromptsOfARequest, ChangeWhereOneBeginsOrEnds) {
  use(ImagePromptForm::Tokens);
  const ImagePrompts prompts(session, with({{.strength = 1, .from = 0.25, .to = 0.75}, {.strength = 1}}), 1);
  EXPECT_FALSE(prompts.change_at(0));
  EXPECT_TRUE(prompts.change_at(1));
  EXPECT_FALSE(prompts.change_at(2));
  EXPECT_TRUE(prompts.change_at(3));
}

TEST_F(ImagePromptsOfARequest, PositionsFollowThoseOfReferences) {
  const auto positions = image_prompt_positions(2, 2, 3);
  ASSERT_EQ(positions.size(), 6u);
  EXPECT_EQ(positions[0].t, 30);
  EXPECT_EQ(positions[2].w, 2);
  EXPECT_EQ(positions[3].t, 40);
  EXPECT_EQ(positions[3].w, 0);
  EXPECT_EQ(positions[5].h, 0);
}

TEST_F(ImagePromptsOfARequest, ImpossibleOnesAreRefused) {
  EXPECT_THAT(failure_of(with({{.strength = 1}})), HasSubstr("no image-prompt adapter is loaded"));
  use(ImagePromptForm::Tokens);
  EXPECT_EQ(failure_of(with({{.strength = 1}})), "");
  EXPECT_THAT(failure_of(with({{.strength = 11}})), HasSubstr("strength 11"));
  EXPECT_THAT(failure_of(with({{.strength = std::nan("")}})), HasSubstr("not a number"));
  EXPECT_THAT(failure_of(with({{.strength = 1, .from = 0.5, .to = 0.5}})), HasSubstr("two rising numbers"));
  EXPECT_THAT(failure_of(with({{.strength = 1, .to = 1.1}})), HasSubstr("two rising numbers"));
  Request request = with({{.strength = 1}});
  request.image_prompts[0].feature.pop_back();
  EXPECT_THAT(failure_of(request), HasSubstr("has 7 values; the adapter reads 8"));
  request = with({{.strength = 1}});
  request.image_prompts[0].feature[0] = INFINITY;
  EXPECT_THAT(failure_of(request), HasSubstr("not numbers"));
  request = with({{.strength = 1}});
  request.references_at_zero = true;
  EXPECT_THAT(failure_of(request), HasSubstr("time 0"));
  request = with({{.strength = 1}});
  request.regions.emplace_back();
  EXPECT_THAT(failure_of(request), HasSubstr("regions"));
  use(ImagePromptForm::Decoupled);
  EXPECT_EQ(failure_of(request), "");
  EXPECT_THAT(failure_of(with(std::vector<ImagePrompt>(65, {.strength = 1}))), HasSubstr("at most 64"));
}

TEST_F(ImagePromptsOfARequest, RunAlone) {
  const Request plain = with({}), prompted = with({{.strength = 1}});
  EXPECT_TRUE(can_run_together(plain, plain));
  EXPECT_FALSE(can_run_together(prompted, prompted));
}

}  // namespace
}  // namespace flux2
