#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/recognise.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

using namespace testing_models;
using ::testing::HasSubstr;

Component recognised(const std::vector<Stripped>& tensors, const std::map<std::string, std::string>& metadata = {}) {
  const Recognition r = recognise(write_stripped(scratch_folder() / "file.safetensors", tensors, metadata));
  EXPECT_EQ(r.components.size(), 1u);
  return r.components.at(0);
}

std::vector<Stripped> clip_tensors(const ClipConfig& config) {
  std::vector<Stripped> tensors;
  ClipVision network(config);
  network.visit([&](const Parameter& p) { tensors.push_back({p.name, p.shape, "F32"}); });
  return tensors;
}

std::vector<Stripped> adapter_tensors(const ImagePromptConfig& config) {
  std::vector<Stripped> tensors;
  ImagePromptNetwork network(config);
  network.visit([&](const Parameter& p) { tensors.push_back({p.name, p.shape, "BF16"}); });
  return tensors;
}

TEST(RecogniseImagePrompt, ThePublishedImageEncoder) {
  std::vector<Stripped> tensors = clip_tensors(ClipConfig{});
  const Component tower = recognised(tensors);
  EXPECT_EQ(tower.kind, ComponentKind::ImageEncoder);
  EXPECT_STREQ(name_of(tower.kind), "image encoder");
  EXPECT_EQ(tower.family, "CLIP");
  EXPECT_EQ(tower.variant, "ViT-L/14");
  EXPECT_EQ(tower.parameters, 303'966'208);
  EXPECT_TRUE(tower.usable()) << tower.problem;
  ASSERT_TRUE(tower.image_encoder);
  EXPECT_EQ(*tower.image_encoder, ClipConfig{});

  tensors.push_back({"text_model.encoder.layers.0.layer_norm1.weight", {768}, "F32"});
  tensors.push_back({"text_projection.weight", {768, 768}, "F32"});
  tensors.push_back({"logit_scale", {}, "F32"});
  const Component both = recognised(tensors);
  EXPECT_EQ(both.kind, ComponentKind::ImageEncoder) << "the text tower does not count";
  EXPECT_TRUE(both.usable()) << both.problem;

  std::erase_if(tensors, [](const Stripped& t) { return t.name == "vision_model.encoder.layers.23.mlp.fc2.bias"; });
  EXPECT_THAT(recognised(tensors).problem, HasSubstr("vision_model.encoder.layers.23.mlp.fc2.bias [1024] is missing"));
}

TEST(RecogniseImagePrompt, EveryDamagedTensorOfAnEncoderIsNamed) {
  ClipConfig config;
  config.hidden = 64, config.intermediate = 32, config.layers = 2, config.heads = 1, config.image = 28, config.projection = 8;
  const std::vector<Stripped> whole = clip_tensors(config);
  ASSERT_TRUE(recognised(whole).usable());
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto problem_with = [&](const std::vector<int64_t>& extents) {
      auto tensors = whole;
      tensors[i].shape = Shape(std::span<const int64_t>(extents));
      return recognised(tensors).problem;
    };
    const std::vector<int64_t> extents(whole[i].shape.begin(), whole[i].shape.end());
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      auto wrong = extents;
      wrong[axis] = 0;
      EXPECT_THAT(problem_with(wrong), HasSubstr(whole[i].name)) << "axis " << axis;
      if (whole[i].name == "visual_projection.weight" && axis == 0) continue;  // a wider projection is a projection
      wrong[axis] = extents[axis] + 1;
      EXPECT_NE(problem_with(wrong), "") << whole[i].name << ", axis " << axis;
    }
    auto deeper = extents;
    deeper.push_back(1);
    EXPECT_THAT(problem_with(deeper), HasSubstr(whole[i].name));
    if (whole[i].name == "vision_model.embeddings.class_embedding") continue;  // without it, this is something else
    auto fewer = whole;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(recognised(fewer).problem, HasSubstr(whole[i].name));
  }
}

TEST(RecogniseImagePrompt, ClipTextEncodersStayTextEncoders) {
  const Component c = recognised({{"text_model.encoder.layers.0.self_attn.q_proj.weight", {768, 768}}});
  EXPECT_EQ(c.kind, ComponentKind::TextEncoder);
  EXPECT_EQ(c.family, "CLIP");
}

TEST(RecogniseImagePrompt, AdaptersOfBothForms) {
  ImagePromptConfig config;
  Component c = recognised(adapter_tensors(config), {{kImagePromptMetadata, config.metadata()}});
  EXPECT_EQ(c.kind, ComponentKind::ImagePrompt);
  EXPECT_STREQ(name_of(c.kind), "image-prompt adapter");
  EXPECT_EQ(c.family, "FLUX.2");
  EXPECT_EQ(c.variant, "image prompt for klein 4B");
  EXPECT_EQ(c.storage, "bf16");
  EXPECT_THAT(c.needs, HasSubstr("pooled vectors of 1024 values (clip-vit-large-patch14)"));
  EXPECT_TRUE(c.usable()) << c.problem;
  ASSERT_TRUE(c.image_prompt);
  EXPECT_EQ(*c.image_prompt, config);

  config.form = ImagePromptForm::Decoupled, config.double_blocks = 8, config.hidden = 4096;
  config.feature = ImageFeature::Projected, config.feature_width = 768;
  auto tensors = adapter_tensors(config);
  c = recognised(tensors, {{kImagePromptMetadata, config.metadata()}});
  EXPECT_EQ(c.variant, "image prompt for klein 9B");
  EXPECT_TRUE(c.usable()) << c.problem;
  EXPECT_EQ(c.image_prompt.value(), config);

  tensors.pop_back();
  c = recognised(tensors, {{kImagePromptMetadata, config.metadata()}});
  EXPECT_EQ(c.kind, ComponentKind::ImagePrompt);
  EXPECT_THAT(c.problem, HasSubstr("is missing"));
}

TEST(RecogniseImagePrompt, FilesForFlux1AreNamedAndRefused) {
  std::vector<Stripped> xlabs = {{"ip_adapter_proj_model.proj.weight", {16384, 768}},
                                 {"ip_adapter_proj_model.proj.bias", {16384}},
                                 {"ip_adapter_proj_model.norm.weight", {4096}},
                                 {"ip_adapter_proj_model.norm.bias", {4096}}};
  for (int n = 0; n < 19; ++n)
    for (const char* which : {"k", "v"}) {
      const std::string name = fmt::format("double_blocks.{}.processor.ip_adapter_double_stream_{}_proj.", n, which);
      xlabs.push_back({name + "weight", {3072, 4096}});
      xlabs.push_back({name + "bias", {3072}});
    }
  const Component adapter = recognised(xlabs);
  EXPECT_EQ(adapter.kind, ComponentKind::ImagePrompt);
  EXPECT_EQ(adapter.family, "FLUX.1");
  EXPECT_EQ(adapter.problem, "this is an IP-Adapter for FLUX.1: it was made for FLUX.1 and cannot be used with FLUX.2");

  const Component redux = recognised({{"redux_up.weight", {12288, 1152}},
                                      {"redux_up.bias", {12288}},
                                      {"redux_down.weight", {4096, 12288}},
                                      {"redux_down.bias", {4096}}});
  EXPECT_EQ(redux.family, "FLUX.1");
  EXPECT_EQ(redux.problem, "this is FLUX.1 Redux: it was made for FLUX.1 and cannot be used with FLUX.2");
}

}  // namespace
}  // namespace flux2
