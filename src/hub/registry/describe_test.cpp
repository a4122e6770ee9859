#include "hub/registry/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_models;

Described only(const fs::path& path) {
  auto parts = identify(path);
  EXPECT_EQ(parts.size(), 1u);
  return parts.at(0);
}

TEST(Describe, IdentifiesATransformerByItsGeometry) {
  const fs::path folder = scratch_folder();
  const Described base =
      only(write_stripped(folder / "flux-2-klein-base-4b.safetensors", transformer_tensors(klein_4b_config())));
  EXPECT_EQ(base.type, "main");
  EXPECT_EQ(base.record.name, "flux.2-klein-base-4b");
  EXPECT_EQ(base.record.variant, "flux.2-klein-base-4b");
  EXPECT_EQ(base.record.format, "safetensors");
  EXPECT_EQ(base.record.quant, "bf16");
  EXPECT_EQ(base.record.license, "Apache-2.0");
  EXPECT_EQ(base.record.probe.hidden, 3072);
  EXPECT_EQ(base.record.probe.single_blocks, 20);
  EXPECT_EQ(base.record.probe.context_dim, 7680);
  EXPECT_EQ(base.record.probe.tensors, 149);
  EXPECT_EQ(base.record.probe.distilled, false);
  EXPECT_EQ(base.confidence, "certain");
  EXPECT_EQ(base.record.bytes, fs::file_size(folder / "flux-2-klein-base-4b.safetensors"));
  EXPECT_EQ(base.record.source.kind, "path");
  EXPECT_EQ(base.record.state, ModelState::Ready);

  // Nothing shows whether this one is distilled. It is assumed but not recorded.
  const Described bare = only(write_stripped(folder / "x.safetensors", transformer_tensors(klein_9b_config())));
  EXPECT_EQ(bare.record.variant, "flux.2-klein-9b");
  EXPECT_TRUE(bare.record.gated);
  EXPECT_EQ(bare.confidence, "likely");
  EXPECT_FALSE(bare.record.probe.distilled);
}

TEST(Describe, SuggestsDescriptiveNames) {
  const fs::path folder = scratch_folder();
  auto tensors = transformer_tensors(klein_4b_config());
  for (auto& t : tensors)
    if (t.name.find("_blocks.") != std::string::npos && t.shape.rank() == 2) t.dtype = "F8_E4M3";
  EXPECT_EQ(only(write_stripped(folder / "a.safetensors", tensors)).record.name, "flux.2-klein-4b-fp8");
  EXPECT_EQ(only(write_stripped(folder / "b.safetensors", vae_tensors({}))).record.name, "flux.2-vae");
  EXPECT_EQ(only(write_stripped(folder / "c.safetensors", qwen3_tensors(2560))).record.name, "qwen3-4b");
  EXPECT_EQ(only(write_stripped(folder / "c.safetensors", qwen3_tensors(2560))).record.probe.hidden, 2560);
  const fs::path lora = write_stripped(
      folder / "loras/Ink wash.safetensors",
      {{"double_blocks.0.img_mlp.0.lora_A.weight", {8, 3072}}, {"double_blocks.0.img_mlp.0.lora_B.weight", {18432, 8}}},
      {{"modelspec.trigger_phrase", "inkwash"}});
  const Described ink = only(lora);
  EXPECT_EQ(ink.type, "lora");
  EXPECT_EQ(ink.record.name, "Ink-wash");
  EXPECT_THAT(ink.record.triggers, ElementsAre("inkwash"));
  EXPECT_EQ(name_from("..//\n"), "model");
  EXPECT_EQ(name_from("-x y:z"), "x-y-z");
  EXPECT_LE(name_from(std::string(500, 'x')).size(), 100u);
}

TEST(Describe, AFolderGivesItsParts) {
  const fs::path folder = tiny_model(scratch_folder() / "toy", {.layout = SynthOptions::Layout::Diffusers});
  std::vector<std::string> names;  // the model's own stands in its model_index.json
  for (const Described& part : identify(folder)) {
    names.push_back(part.type + " " + part.record.name);
    EXPECT_EQ(part.record.format, "diffusers") << part.type;
    EXPECT_GT(part.record.bytes, 0u);
    EXPECT_TRUE(part.usable());
  }
  EXPECT_THAT(names, ElementsAre("main tiny", "vae toy-vae", "text_encoder toy-text-encoder", "tokenizer toy-tokenizer"));
}

TEST(Describe, AHubCacheShowsSourceAndHash) {
  const fs::path folder = scratch_folder() / "models--black-forest-labs--FLUX.2-klein-base-4B";
  const std::string hash = "9c5fed22b76baea749d88fc2abe3ad53245e7b21a0d353a762665eea00043b92";
  write_stripped(folder / "blobs" / hash, transformer_tensors(klein_4b_config()));
  fs::create_directories(folder / "snapshots/abc");
  fs::create_symlink("../../blobs/" + hash, folder / "snapshots/abc/model.safetensors");
  const Described part = only(folder / "snapshots/abc/model.safetensors");
  EXPECT_EQ(part.record.source, (ModelSource{"hub", "black-forest-labs/FLUX.2-klein-base-4B", "abc"}));
  EXPECT_EQ(part.record.sha256, hash);
  EXPECT_EQ(part.record.variant, "flux.2-klein-base-4b");  // known by the hash
  EXPECT_EQ(part.confidence, "certain");
  EXPECT_THAT(part.evidence, Contains(HasSubstr("its hash is that of flux-2-klein-base-4b.safetensors")));
}

TEST(Describe, ReportsUnusableFiles) {
  const fs::path folder = scratch_folder();
  write_file(folder / "cut.safetensors", std::string("\x10\0\0\0\0\0\0\0{\"a\":", 13));
  const Described cut = only(folder / "cut.safetensors");
  EXPECT_EQ(cut.record.state, ModelState::Damaged);
  EXPECT_THAT(refusal([&] { require_usable({cut}, folder / "cut.safetensors"); }), HasSubstr("BadFile"));

  const Described flux1 = only(write_stripped(folder / "f.safetensors", {{"vector_in.in_layer.weight", {3072, 768}},
                                                                         {"double_blocks.0.img_mod.lin.weight", {18432, 3072}}}));
  EXPECT_EQ(flux1.record.state, ModelState::Unsupported);
  EXPECT_EQ(flux1.record.family, "FLUX.1");
  EXPECT_THAT(refusal([&] { require_usable({flux1}, folder / "f.safetensors"); }), HasSubstr("FLUX.1"));

  write_file(folder / "p.png", "\x89PNG\r\n\x1a\n");
  EXPECT_THAT(only(folder / "p.png").problem, HasSubstr("PNG image"));
  EXPECT_EQ(only(folder / "p.png").type, "unknown");
  const Described big = only(write_stripped(folder / "upscale_models/4x.safetensors", {{"body.0.weight", {64, 3, 3, 3}}}));
  EXPECT_EQ(big.type, "upscaler");
  EXPECT_EQ(big.record.state, ModelState::Unsupported);
  std::vector<Stripped> tensors;
  for (const auto& [name, shape] : upscaler_tensors({.scale = 2})) tensors.push_back({name, shape, "F32"});
  const Described upscaler = only(write_stripped(folder / "upscale_models/2x.safetensors", tensors));
  EXPECT_EQ(upscaler.type, "upscaler");
  EXPECT_EQ(upscaler.record.state, ModelState::Ready);
  EXPECT_EQ(upscaler.record.name, "2x");
  EXPECT_EQ(upscaler.record.variant, "x2");
  EXPECT_EQ(upscaler.record.probe.hidden, 64);
  const Described tiny =
      only(write_stripped(folder / "vae_approx/taef2.safetensors", {{"decoder.layers.0.weight", {64, 32, 3, 3}}}));
  EXPECT_EQ(tiny.type, "tiny_vae");
  EXPECT_EQ(tiny.record.state, ModelState::Ready);
  const Described taef1 = only(write_stripped(folder / "vae_approx/taef1.safetensors", {{"decoder.1.weight", {64, 16, 3, 3}}}));
  EXPECT_EQ(taef1.record.state, ModelState::Unsupported);
  EXPECT_THAT(taef1.problem, HasSubstr("of another model"));
  const Described siglip =
      only(write_stripped(folder / "clip_vision/siglip.safetensors", {{"vision_model.head.probe", {1, 1, 1152}}}));
  EXPECT_EQ(siglip.type, "image_encoder");
  EXPECT_EQ(siglip.record.state, ModelState::Unsupported);
  const Described misplaced = only(write_stripped(folder / "diffusion_models/vae.safetensors", vae_tensors({})));
  EXPECT_THAT(misplaced.evidence, Contains(HasSubstr("folder for type main")));
  EXPECT_THAT(refusal([&] { identify(folder / "nowhere"); }), HasSubstr("NotFound"));
}

TEST(Describe, ASetWithoutAllItsPartsIsNotReady) {
  const fs::path folder = scratch_folder();
  write_stripped(folder / "x-00001-of-00003.safetensors", {{"a", {4}}});
  const Described part = only(folder / "x-00001-of-00003.safetensors");
  EXPECT_FALSE(part.usable());
  EXPECT_THAT(part.problem, HasSubstr("00002-of-00003"));
}

}  // namespace
}  // namespace flux2
