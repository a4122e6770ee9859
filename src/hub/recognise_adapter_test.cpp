#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/recognise.h"
#include "hub/test_models.h"
#include "weights/adapter_file.h"

namespace flux2 {
namespace {

using namespace testing_models;
using ::testing::HasSubstr;

Component adapter(const std::vector<Stripped>& tensors, const std::map<std::string, std::string>& metadata = {}) {
  const Recognition r = recognise(write_stripped(scratch_folder() / "adapter.safetensors", tensors, metadata));
  EXPECT_EQ(r.components.size(), 1u);
  EXPECT_EQ(r.components.at(0).kind, ComponentKind::Adapter);
  return r.components.at(0);
}

// A pair of rank 16 for a layer [out, in].
std::vector<Stripped> pair(const std::string& module, int64_t out, int64_t in, const char* down = ".lora_A.weight",
                           const char* up = ".lora_B.weight") {
  return {{module + down, {16, in}}, {module + up, {out, 16}}};
}

TEST(RecogniseAdapter, EveryKeyStyleOfFlux2) {
  const struct {
    const char* module;
    int64_t out, in;
    const char *down, *up;
  } styles[] = {
      {"transformer.single_transformer_blocks.7.attn.to_qkv_mlp_proj", 27648, 3072, ".lora_A.weight", ".lora_B.weight"},
      {"base_model.model.transformer_blocks.0.ff.linear_in", 18432, 3072, ".lora_A.weight", ".lora_B.weight"},
      {"diffusion_model.double_blocks.3.img_mlp.0", 18432, 3072, ".lora_A.weight", ".lora_B.weight"},
      {"lora_unet_double_blocks_3_img_mlp_0", 18432, 3072, ".lora_down.weight", ".lora_up.weight"},
      {"lora_transformer_single_transformer_blocks_7_attn_to_out", 3072, 12288, ".lora_down.weight", ".lora_up.weight"},
      {"transformer_blocks.1.ff_context.linear_out", 3072, 9216, ".lora_A.default.weight", ".lora_B.default.weight"},
      {"transformer.transformer_blocks.1.ff.linear_out", 3072, 9216, ".lora.down.weight", ".lora.up.weight"},
      {"diffusion_model.single_blocks.19.linear1", 27648, 3072, ".lora_down.weight", ".lora_up.weight"},
  };
  for (const auto& s : styles) {
    const Component c = adapter(pair(s.module, s.out, s.in, s.down, s.up));
    EXPECT_EQ(c.family, "FLUX.2") << s.module;
    EXPECT_EQ(c.variant, "LoRA of rank 16 for klein 4B") << s.module;
    EXPECT_TRUE(c.usable());
  }
}

TEST(RecogniseAdapter, SizeFromTheWidth) {
  EXPECT_THAT(adapter(pair("diffusion_model.double_blocks.0.img_attn.qkv", 12288, 4096)).variant, HasSubstr("klein 9B"));
  EXPECT_THAT(adapter(pair("diffusion_model.double_blocks.0.img_attn.proj", 6144, 6144)).variant, HasSubstr("dev"));
}

TEST(RecogniseAdapter, Flux1IsRefusedWithTheKey) {
  const std::vector<std::vector<Stripped>> files = {pair("lora_unet_double_blocks_0_img_mod_lin", 18432, 3072),
                                                    pair("transformer.single_transformer_blocks.0.proj_mlp", 12288, 3072),
                                                    pair("transformer.transformer_blocks.0.ff.net.0.proj", 12288, 3072),
                                                    pair("diffusion_model.double_blocks.0.img_mlp.0", 12288, 3072),
                                                    pair("diffusion_model.single_blocks.0.linear1", 21504, 3072),
                                                    pair("lora_unet_double_blocks_18_img_attn_qkv", 9216, 3072),
                                                    pair("diffusion_model.double_blocks.0.processor.qkv_lora1", 9216, 3072)};
  for (const auto& file : files) {
    const Component c = adapter(file);
    EXPECT_EQ(c.family, "FLUX.1") << file[0].name;
    EXPECT_THAT(c.problem, HasSubstr(file[0].name));
  }
}

TEST(RecogniseAdapter, AttentionAloneIsAmbiguousWithoutMetadata) {
  const auto tensors = pair("diffusion_model.double_blocks.0.img_attn.qkv", 9216, 3072);
  EXPECT_EQ(adapter(tensors).family, "");
  EXPECT_TRUE(adapter(tensors).usable());
  EXPECT_EQ(adapter(tensors, {{"ss_base_model_version", "flux_2_klein_4b"}}).family, "FLUX.2");
  EXPECT_EQ(adapter(tensors, {{"modelspec.architecture", "flux-1-dev/lora"}}).family, "FLUX.1");
}

TEST(RecogniseAdapter, OtherDecompositions) {
  const Component lokr = adapter({{"lycoris_double_blocks_0_img_mlp_0.lokr_w1", {32, 16}},
                                  {"lycoris_double_blocks_0_img_mlp_0.lokr_w2_a", {576, 8}},
                                  {"lycoris_double_blocks_0_img_mlp_0.lokr_w2_b", {8, 192}}});
  EXPECT_EQ(lokr.family, "FLUX.2");
  EXPECT_EQ(lokr.variant, "LoKr of rank 8 for klein 4B");
  EXPECT_EQ(
      adapter({{"double_blocks.0.img_attn.proj.lokr_w1", {64, 64}}, {"double_blocks.0.img_attn.proj.lokr_w2", {64, 64}}}).variant,
      "LoKr for klein 9B");
  const Component loha = adapter({{"x_embedder.hada_w1_a", {3072, 4}},
                                  {"x_embedder.hada_w1_b", {4, 64}},
                                  {"x_embedder.hada_w2_a", {3072, 4}},
                                  {"x_embedder.hada_w2_b", {4, 64}}});
  EXPECT_EQ(loha.family, "FLUX.1");
  EXPECT_EQ(loha.variant, "LoHa of rank 4");
  auto dora = pair("single_blocks.0.linear2", 3072, 12288);
  dora.push_back({"single_blocks.0.linear2.dora_scale", {3072, 1}});
  EXPECT_EQ(adapter(dora).variant, "DoRA of rank 16 for klein 4B");
  EXPECT_EQ(adapter({{"txt_in.diff", {3072, 7680}}}).family, "FLUX.2");
}

// Recognition names what loading refuses.
TEST(RecogniseAdapter, AlgorithmsThatCannotBeLoaded) {
  const struct {
    std::vector<Stripped> tensors;
    const char *variant, *refusal;
  } files[] = {
      {{{"txt_in.a1.weight", {4, 7680}}, {"txt_in.a2.weight", {7680, 4}}}, "GLoRA", "GLoRA, which is not supported"},
      {{{"txt_in.on_input", {7680}}, {"txt_in.weight", {7680}}}, "IA3", "IA3, which is not supported"},
      {{{"txt_in.oft_R.default.weight", {8, 32}}}, "OFT", "PEFT's OFT, which is not supported"},
      {{{"txt_in.set_weight", {3072, 7680}}}, "difference", "set_weight"},
      {{{"txt_in.lora_A.weight", {4, 7680}}}, "LoRA of rank 4", "its up is missing"},
      {{{"txt_in.lora_A.weight", {4, 7680}}, {"txt_in.lora_down.weight", {4, 7680}}},
       "LoRA of rank 4",
       "the same part of a layer"},
  };
  for (const auto& f : files) {
    const std::filesystem::path path = write_stripped(scratch_folder() / "odd_adapter.safetensors", f.tensors);
    const Recognition r = recognise(path);
    ASSERT_EQ(r.components.size(), 1u) << f.variant;
    EXPECT_EQ(r.components[0].kind, ComponentKind::Adapter) << f.variant;
    EXPECT_THAT(r.components[0].variant, HasSubstr(f.variant));
    EXPECT_THAT(refusal([&] { read_adapter(path); }), HasSubstr(f.refusal));
  }
}

TEST(RecogniseAdapter, OtherFamiliesAndTextEncoders) {
  EXPECT_EQ(adapter(pair("transformer_blocks.0.img_mlp.net.0.proj", 12288, 3072)).family, "Qwen-Image");
  EXPECT_EQ(adapter(pair("diffusion_model.blocks.0.self_attn.q", 5120, 5120)).family, "Wan");
  EXPECT_EQ(adapter(pair("diffusion_model.layers.0.attention.to_q", 3840, 3840)).family, "Z-Image");
  EXPECT_EQ(adapter(pair("lora_unet_down_blocks_0_attentions_0", 320, 320)).family, "Stable Diffusion");
  EXPECT_THAT(adapter(pair("lora_te1_text_model_layers_0", 768, 768)).problem, HasSubstr("text encoders only"));
}

TEST(RecogniseAdapter, AModelWithAdapterMatricesIsRefused) {
  auto tensors = transformer_tensors({.hidden = 128, .double_blocks = 1, .single_blocks = 1, .text_width = 192});
  tensors.push_back({"single_blocks.0.linear2.lora_A.weight", {4, 512}});
  const Recognition r = recognise(write_stripped(scratch_folder() / "odd.safetensors", tensors));
  EXPECT_THAT(refusal([&] { required_part(r, ComponentKind::Transformer); }), HasSubstr("a whole model and an adapter"));
}

}  // namespace
}  // namespace flux2
