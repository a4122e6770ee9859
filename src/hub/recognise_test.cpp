#include "hub/recognise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_models.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using namespace testing_models;
using ::testing::HasSubstr;

Component only(const Recognition& r) {
  EXPECT_EQ(r.components.size(), 1u) << r.path;
  return r.components.empty() ? Component{} : r.components[0];
}

Component only(const std::vector<Stripped>& tensors, const std::map<std::string, std::string>& metadata = {}) {
  return only(recognise(write_stripped(scratch_folder() / "file.safetensors", tensors, metadata)));
}

TEST(Recognise, ThePublishedClassifier) {
  std::vector<Stripped> tensors;
  VitClassifier network{VitConfig{}};
  network.visit([&](const Parameter& p) { tensors.push_back({p.name, p.shape, "F32"}); });
  const Component c = only(tensors);
  EXPECT_EQ(c.kind, ComponentKind::Classifier);
  EXPECT_EQ(c.family, "ViT");
  EXPECT_EQ(c.variant, "nsfw");
  EXPECT_EQ(c.parameters, 85'800'194);
  EXPECT_TRUE(c.usable());
  ASSERT_TRUE(c.classifier);
  EXPECT_EQ(*c.classifier, VitConfig{});
  tensors.pop_back();
  EXPECT_THAT(only(tensors).problem, HasSubstr("classifier.bias [2] is missing"));
}

TEST(Recognise, PublishedTransformersByGeometry) {
  const struct {
    Flux2Config config;
    const char* name;
    int64_t parameters, tensors;
  } cases[] = {{klein_4b_config(), "klein 4B", 3'875'544'576, 149},
               {klein_9b_config(), "klein 9B", 9'078'581'248, 201},
               {dev_config(), "dev", 32'223'281'152, 299}};
  for (const auto& expected : cases)
    for (const char* prefix : {"", "model.diffusion_model.", "diffusion_model.", "transformer."}) {
      const Component c = only(transformer_tensors(expected.config, prefix));
      EXPECT_EQ(c.kind, ComponentKind::Transformer);
      EXPECT_EQ(c.family, "FLUX.2");
      EXPECT_EQ(c.variant, expected.name);
      EXPECT_EQ(c.prefix, prefix);
      EXPECT_EQ(c.dialect, "original");
      EXPECT_EQ(c.storage, "bf16");
      EXPECT_EQ(c.parameters, expected.parameters);
      EXPECT_EQ(c.tensors, expected.tensors);
      EXPECT_TRUE(c.usable()) << c.problem;
      EXPECT_EQ(c.distilled.has_value(), !expected.config.guidance);
    }
}

TEST(Recognise, Upscalers) {
  for (int scale : {1, 2, 4})
    for (bool older : {false, true}) {
      std::vector<Stripped> tensors;
      for (const auto& [name, shape] : upscaler_tensors({.scale = scale, .older_names = older}))
        tensors.push_back({name, shape, "F16"});
      const Component c = only(tensors);
      EXPECT_EQ(c.kind, ComponentKind::Upscaler);
      EXPECT_EQ(c.family, "RRDBNet");
      EXPECT_EQ(c.variant, "x" + std::to_string(scale));
      EXPECT_EQ(c.storage, "f16");
      EXPECT_TRUE(c.usable()) << c.problem;
      tensors.pop_back();
      EXPECT_THAT(only(tensors).problem, HasSubstr("is missing"));
    }
}

TEST(Recognise, NormsMayEndInWeight) {
  auto tensors = transformer_tensors(klein_4b_config());
  for (Stripped& t : tensors)
    if (t.name.ends_with(".scale")) t.name.replace(t.name.size() - 5, 5, "weight");
  EXPECT_TRUE(only(tensors).usable());
}

TEST(Recognise, DamagedTransformersNameWhatIsWrong) {
  auto tensors = transformer_tensors(klein_4b_config());
  std::erase_if(tensors, [](const Stripped& t) { return t.name == "double_blocks.3.txt_mlp.2.weight"; });
  const Component c = only(tensors);
  EXPECT_FALSE(c.usable());
  EXPECT_THAT(c.problem, HasSubstr("double_blocks.3.txt_mlp.2.weight [3072, 9216] is missing"));
}

TEST(Recognise, BaseOrDistilledByTheFirstEvidence) {
  const auto folder = scratch_folder();
  const auto tensors = transformer_tensors({.hidden = 128, .double_blocks = 1, .single_blocks = 1, .text_width = 192});
  const auto at = [&](const std::string& name, const std::map<std::string, std::string>& metadata = {}) {
    return only(recognise(write_stripped(folder / name, tensors, metadata)));
  };
  EXPECT_FALSE(*at("a/flux-2-klein-base-4b.safetensors").distilled);
  EXPECT_TRUE(*at("b/flux-2-klein-4b.safetensors").distilled);
  EXPECT_THAT(at("b/flux-2-klein-4b.safetensors").distilled_reason, HasSubstr("nothing says otherwise"));
  EXPECT_TRUE(*at("c/baseline.safetensors").distilled);  // only the whole word counts
  EXPECT_FALSE(*at("FLUX.2-klein-base-4B/model.safetensors").distilled);
  EXPECT_TRUE(at("d/klein-9b-kv.safetensors").kv);
  EXPECT_FALSE(*at("e/x.safetensors", {{"modelspec.title", "Klein Base"}}).distilled);
  EXPECT_TRUE(*at("e/my-base.safetensors", {{"modelspec.title", "distilled"}}).distilled);
  write_file(folder / "f/model_index.json", R"({"is_distilled": true})");
  EXPECT_TRUE(*at("f/base.safetensors").distilled);
  write_file(folder / "g/model_index.json", R"({"_class_name": "Flux2KleinPipeline"})");
  EXPECT_FALSE(*at("g/x.safetensors").distilled);
}

TEST(Recognise, AutoencodersByLatentChannels) {
  const Component full = only(vae_tensors({}));
  EXPECT_EQ(full.kind, ComponentKind::Autoencoder);
  EXPECT_EQ(full.family, "FLUX.2");
  EXPECT_EQ(full.variant, "full");

  const Component small = only(vae_tensors({.encoder_widths = {64, 128, 256, 256}, .decoder_widths = {32, 64, 128, 128}}));
  EXPECT_EQ(small.variant, "small decoder");
  ASSERT_TRUE(small.vae);
  EXPECT_EQ(small.vae->encoder_widths[3], 256);
  EXPECT_THAT(small.vae->decoder_widths, ::testing::ElementsAre(32, 64, 128, 128));

  EXPECT_EQ(only(vae_tensors({.has_encoder = false})).variant, "decoder only");

  const auto refused = [&](VaeConfig config) {
    auto tensors = vae_tensors(config);
    std::erase_if(tensors, [](const Stripped& t) { return t.name.starts_with("bn."); });
    return only(tensors);
  };
  EXPECT_THAT(refused({.latent_channels = 16}).problem, HasSubstr("16 latent channels; FLUX.2 needs 32"));
  EXPECT_THAT(refused({.latent_channels = 16}).hint.text, HasSubstr("ae.safetensors"));
  EXPECT_EQ(refused({.latent_channels = 16}).family, "FLUX.1 or SD3");
  EXPECT_EQ(refused({.latent_channels = 4}).family, "SD or SDXL");
  EXPECT_THAT(refused({}).problem, HasSubstr("bn.running_mean"));
  EXPECT_EQ(only({{"decoder.conv_in.weight", {384, 16, 3, 3, 3}}}).family, "video");
  EXPECT_THAT(only({{"decoder.layers.0.weight", {64, 32, 3, 3}}}).problem, HasSubstr("previews"));
}

TEST(Recognise, TextEncoders) {
  EXPECT_EQ(only(qwen3_tensors(2560, 36)).variant, "Qwen3-4B");
  EXPECT_EQ(only(qwen3_tensors(4096, 36)).variant, "Qwen3-8B");
  EXPECT_EQ(only(qwen3_tensors(1024)).variant, "Qwen3-0.6B");
  EXPECT_EQ(only(qwen3_tensors(2560, 27, "text_encoders.qwen3_4b.transformer.model.")).variant, "Qwen3-4B");
  EXPECT_TRUE(only(qwen3_tensors(2560)).usable());

  auto qwen2 = qwen3_tensors(3584);
  std::erase_if(qwen2, [](const Stripped& t) { return t.name.find("_norm.") != std::string::npos; });
  auto mistral = qwen3_tensors(5120, 30);
  std::erase_if(mistral,
                [](const Stripped& t) { return t.name.ends_with("q_norm.weight") || t.name.ends_with("k_norm.weight"); });
  EXPECT_EQ(only(mistral).family, "Mistral");
  EXPECT_EQ(only(mistral).variant, "Mistral-Small-24B");
  EXPECT_TRUE(only(mistral).usable()) << only(mistral).problem;
  EXPECT_EQ(only(mistral).decoder->norm_eps, 1e-5f);
  EXPECT_EQ(only(mistral).serves, std::vector<std::string>{"text states"});
  std::erase_if(mistral, [](const Stripped& t) { return t.name.find("layers.28.") != std::string::npos; });
  EXPECT_THAT(only(mistral).problem, HasSubstr("28 of Mistral's layers, but FLUX.2-dev reads the output of layer 30"));
  mistral[0].shape = {32000, 5120};
  EXPECT_EQ(only(mistral).family, "Llama");
  qwen2.push_back({"model.layers.0.self_attn.q_proj.bias", {4096}});
  EXPECT_EQ(only(qwen2).family, "Qwen2");
  auto vl = qwen3_tensors(2560);
  vl.push_back({"visual.blocks.0.attn.qkv.weight", {3072, 1024}});
  EXPECT_EQ(only(vl).family, "Qwen3-VL");
  auto gemma = qwen3_tensors(2304);
  gemma.push_back({"model.layers.0.pre_feedforward_layernorm.weight", {2304}});
  EXPECT_EQ(only(gemma).family, "Gemma");

  const Component t5 = only({{"shared.weight", {32128, 4096}}, {"encoder.block.0.layer.0.SelfAttention.q.weight", {4096, 4096}}});
  EXPECT_EQ(t5.family, "T5");
  EXPECT_THAT(t5.problem, HasSubstr("FLUX.2 does not use T5/CLIP"));
  EXPECT_EQ(only({{"text_model.encoder.layers.0.self_attn.q_proj.weight", {768, 768}},
                  {"text_model.encoder.layers.0.self_attn.q_proj.bias", {768}}})
                .family,
            "CLIP");
}

TEST(Recognise, OtherFamiliesAreNamed) {
  const auto family = [&](const std::vector<Stripped>& tensors) { return only(tensors).family; };
  std::vector<Stripped> flux1 = {{"vector_in.in_layer.weight", {3072, 768}}, {"img_in.weight", {3072, 64}}};
  for (int i = 0; i < 19; ++i) flux1.push_back({fmt::format("double_blocks.{}.img_mod.lin.weight", i), {18432, 3072}});
  for (int i = 0; i < 38; ++i) flux1.push_back({fmt::format("single_blocks.{}.modulation.lin.weight", i), {9216, 3072}});
  EXPECT_EQ(family(flux1), "FLUX.1");
  EXPECT_EQ(only(flux1).problem, "this is a FLUX.1 model (19 double, 38 single blocks); only FLUX.2 is supported");
  EXPECT_EQ(family({{"time_text_embed.timestep_embedder.linear_1.weight", {3072, 256}},
                    {"transformer_blocks.0.norm1.linear.weight", {18432, 3072}},
                    {"single_transformer_blocks.0.norm.linear.weight", {9216, 3072}}}),
            "FLUX.1");
  EXPECT_EQ(family({{"model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight", {4, 4}}}), "SD3");
  EXPECT_EQ(family({{"model.diffusion_model.input_blocks.0.0.weight", {320, 4, 3, 3}},
                    {"model.diffusion_model.label_emb.0.0.weight", {4, 4}}}),
            "SDXL");
  EXPECT_EQ(family({{"model.diffusion_model.input_blocks.0.0.weight", {320, 4, 3, 3}}}), "Stable Diffusion 1 or 2");
  EXPECT_EQ(family({{"transformer_blocks.0.img_mod.1.weight", {4, 4}}}), "Qwen-Image");
  EXPECT_EQ(family({{"noise_refiner.0.attention.qkv.weight", {4, 4}}, {"cap_embedder.0.weight", {4}}}), "Z-Image");
  EXPECT_EQ(family({{"distilled_guidance_layer.in_proj.weight", {4, 4}}, {"double_blocks.0.img_attn.qkv.weight", {4, 4}}}),
            "Chroma");
  EXPECT_EQ(family({{"blocks.0.self_attn.q.weight", {4, 4}}, {"patch_embedding.weight", {4, 4, 1, 2, 2}}}), "Wan");
  EXPECT_EQ(
      family({{"double_blocks.0.img_mod.linear.weight", {4, 4}}, {"txt_in.individual_token_refiner.blocks.0.norm1.weight", {4}}}),
      "Hunyuan");
  EXPECT_EQ(family({{"something.else", {4}}}), "");
}

TEST(Recognise, SeveralComponentsInOneFile) {
  auto tensors = transformer_tensors(klein_4b_config(), "model.diffusion_model.");
  const auto vae = vae_tensors({}, "vae.");
  const auto text = qwen3_tensors(2560, 27, "text_encoders.qwen3_4b.transformer.model.");
  const size_t transformer_count = tensors.size();
  tensors.insert(tensors.end(), vae.begin(), vae.end());
  tensors.insert(tensors.end(), text.begin(), text.end());
  const Recognition r = recognise(write_stripped(scratch_folder() / "all.safetensors", tensors));
  ASSERT_EQ(r.components.size(), 3u);
  EXPECT_EQ(required_part(r, ComponentKind::Transformer).tensors, static_cast<int64_t>(transformer_count));
  EXPECT_EQ(required_part(r, ComponentKind::Autoencoder).tensors, static_cast<int64_t>(vae.size()));
  EXPECT_EQ(required_part(r, ComponentKind::TextEncoder).variant, "Qwen3-4B");
}

TEST(Recognise, RequiredPartNamesWhatWasFoundInstead) {
  const auto folder = scratch_folder();
  const auto vae = write_stripped(folder / "ae.safetensors", vae_tensors({}));
  EXPECT_THAT(
      refusal([&] { required_part(recognise(vae), ComponentKind::Transformer); }),
      ::testing::AllOf(HasSubstr("ae.safetensors is a FLUX.2 autoencoder, not a transformer"), HasSubstr("Incompatible")));
  EXPECT_THAT(refusal([&] { required_part(recognise(vae), ComponentKind::Adapter); }),
              HasSubstr("ae.safetensors is a FLUX.2 autoencoder, not an adapter"));
  EXPECT_THAT(refusal([&] { recognise(folder / "nothing"); }), HasSubstr("nothing does not exist"));
}

TEST(Recognise, FoldersTokenizersAndPictures) {
  const auto folder = scratch_folder();
  for (const auto layout : {SynthOptions::Layout::Bfl, SynthOptions::Layout::Diffusers}) {
    const bool diffusers = layout == SynthOptions::Layout::Diffusers;
    const auto model = tiny_model(folder / (diffusers ? "diffusers" : "bfl"), {.layout = layout, .base = true});
    const Recognition r = recognise(model);
    EXPECT_EQ(r.kind, Recognition::Kind::Pipeline);
    EXPECT_EQ(r.container, diffusers ? "diffusers folder" : "folder");
    for (const auto kind :
         {ComponentKind::Transformer, ComponentKind::Autoencoder, ComponentKind::TextEncoder, ComponentKind::Tokenizer})
      EXPECT_TRUE(required_part(r, kind).usable()) << name_of(kind);
    EXPECT_EQ(required_part(r, ComponentKind::Transformer).dialect, diffusers ? "diffusers" : "original");
    EXPECT_EQ(required_part(r, ComponentKind::Autoencoder).dialect, diffusers ? "diffusers" : "original");
    EXPECT_FALSE(*required_part(r, ComponentKind::Transformer).distilled);
    EXPECT_EQ(recognise(model / "tokenizer").kind, Recognition::Kind::Tokenizer);
    EXPECT_EQ(required_part(recognise(model / "text_encoder"), ComponentKind::TextEncoder).text_width, 64);
  }
  write_file(folder / "a.png", "\x89PNG\r\n\x1a\n0000");
  EXPECT_EQ(recognise(folder / "a.png").kind, Recognition::Kind::Image);
  write_file(folder / "a.ckpt", "PK\x03\x04 ...");
  EXPECT_THAT(refusal([&] { required_part(recognise(folder / "a.ckpt"), ComponentKind::Transformer); }),
              HasSubstr("safetensors and GGUF files are"));
}

// A header of 1152 bytes begins like a pickle, one of 19280 like a zip archive.
TEST(Recognise, HeaderLengthIsNotEvidence) {
  for (const size_t length : {640u, 896u, 1152u, 1408u, 0x4b50u}) {
    std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(length, ' ');
    std::string file(8, '\0');
    for (size_t i = 0; i < 4; ++i) file[i] = static_cast<char>(length >> 8 * i);
    const auto path = scratch_folder() / "file.safetensors";
    write_file(path, file + header + std::string(4, '\0'));
    EXPECT_EQ(recognise(path).container, "safetensors") << length;
  }
  const auto path = scratch_folder() / "model.ckpt";
  write_file(path, std::string("\x80\x02}q\x01(X\x05\0\0\0{", 12));
  EXPECT_EQ(recognise(path).container, "pickle");
}

TEST(Recognise, TheBundledModel) {
  const std::filesystem::path pico = test::pico_folder();
  if (!std::filesystem::exists(pico)) GTEST_SKIP() << "models/pico is not there";
  const Recognition r = recognise(pico);
  EXPECT_EQ(required_part(r, ComponentKind::Transformer).flux2->hidden, 256);
  EXPECT_EQ(required_part(r, ComponentKind::Autoencoder).vae->encoder_widths[0], 32);
  EXPECT_EQ(required_part(r, ComponentKind::TextEncoder).decoder->layers, 7);
  EXPECT_FALSE(*required_part(r, ComponentKind::Transformer).distilled);
}

}  // namespace
}  // namespace flux2
