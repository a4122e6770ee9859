#include "hub/registry/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using namespace testing_models;

std::vector<std::string> types_in(const fs::path& folder) {
  std::vector<std::string> list;
  for (const Described& part : scan_folder(folder))
    list.push_back(part.type + " " + part.record.path.lexically_relative(fs::canonical(folder)).string() +
                   (part.usable() ? "" : " !"));
  return list;
}

TEST(Scan, RecognisesTheFoldersOfOtherTools) {
  const fs::path root = scratch_folder(), models = root / "ComfyUI/models";
  write_stripped(models / "diffusion_models/klein.safetensors", transformer_tensors(klein_4b_config()));
  write_stripped(models / "unet/old.safetensors", transformer_tensors(klein_9b_config()));
  write_stripped(models / "vae/flux2-vae.safetensors", vae_tensors({}));
  write_stripped(models / "text_encoders/qwen.safetensors", qwen3_tensors(2560));
  write_stripped(models / "clip/clip_l.safetensors", {{"text_model.encoder.layers.0.mlp.fc1.weight", {4, 4}}});
  write_stripped(models / "upscale_models/4x.safetensors", {{"body.0.weight", {4, 4}}});
  write_file(models / "upscale_models/4x.pth", "PK\x03\x04xxxxxxxxxxxxxx");
  write_stripped(models / "loras/ink.safetensors", {{"double_blocks.0.img_mlp.0.lora_A.weight", {8, 3072}},
                                                    {"double_blocks.0.img_mlp.0.lora_B.weight", {18432, 8}}});
  write_file(root / "notes.txt", "nothing");
  EXPECT_THAT(
      types_in(root),
      UnorderedElementsAre(
          "main ComfyUI/models/diffusion_models/klein.safetensors", "main ComfyUI/models/unet/old.safetensors",
          "vae ComfyUI/models/vae/flux2-vae.safetensors", "text_encoder ComfyUI/models/text_encoders/qwen.safetensors",
          "text_encoder ComfyUI/models/clip/clip_l.safetensors !", "upscaler ComfyUI/models/upscale_models/4x.safetensors !",
          "upscaler ComfyUI/models/upscale_models/4x.pth !", "lora ComfyUI/models/loras/ink.safetensors"));
}

TEST(Scan, FindsThePartsOfFolders) {
  const fs::path root = scratch_folder();
  tiny_model(root / "own");
  tiny_model(root / "d", {.layout = SynthOptions::Layout::Diffusers});
  EXPECT_THAT(types_in(root),
              UnorderedElementsAre("main own/flux-2-tiny.safetensors", "vae own/ae.safetensors", "text_encoder own/text_encoder",
                                   "tokenizer own/tokenizer", "main d/transformer", "vae d/vae", "text_encoder d/text_encoder",
                                   "tokenizer d/tokenizer"));
}

TEST(Scan, DoesNotFollowLinksOutOfTheFolder) {
  const fs::path root = scratch_folder();
  write_stripped(root / "outside/vae.safetensors", vae_tensors({}));
  write_stripped(root / "inside/real/vae.safetensors", vae_tensors({}));
  fs::create_symlink(root / "outside", root / "inside/folder");
  fs::create_symlink(root / "outside/vae.safetensors", root / "inside/file.safetensors");
  fs::create_symlink(root / "inside", root / "inside/real/loop");
  fs::create_symlink("real/vae.safetensors", root / "inside/again.safetensors");
  fs::create_symlink("gone", root / "inside/broken.safetensors");
  EXPECT_THAT(types_in(root / "inside"), ElementsAre("vae again.safetensors"));  // one file, whatever its names
}

TEST(Scan, ReadsAHubCacheByItsSnapshots) {
  const fs::path cache = scratch_folder(), repository = cache / "models--owner--name";
  const std::string hash(64, 'a');
  write_stripped(repository / "blobs" / hash, vae_tensors({}));
  for (const char* commit : {"111", "222"}) {
    fs::create_directories(repository / "snapshots" / commit / "vae");
    fs::create_symlink("../../../blobs/" + hash, repository / "snapshots" / commit / "vae/x.safetensors");
  }
  write_file(repository / "refs/main", "222");
  write_file(cache / ".locks/models--owner--name/x.lock", "");
  const auto found = scan_folder(cache);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].record.source, (ModelSource{"hub", "owner/name", "222"}));
  EXPECT_EQ(found[0].record.sha256, hash);
  EXPECT_EQ(scan_folder(repository / "snapshots/111").size(), 1u);  // links to its own blobs are followed
}

TEST(Scan, StopsWhenAsked) {
  const fs::path root = scratch_folder();
  fs::create_directories(root / "a/b");
  int folders = 0;
  EXPECT_THAT(refusal([&] { scan_folder(root, [&](const fs::path&) { return ++folders < 2; }); }), HasSubstr("Cancelled"));
  EXPECT_EQ(folders, 2);
  EXPECT_THAT(scan_folder(root), IsEmpty());
  EXPECT_THAT(refusal([&] { scan_folder(root / "none"); }), HasSubstr("NotFound"));
}

}  // namespace
}  // namespace flux2
