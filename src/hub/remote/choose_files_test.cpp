#include "hub/remote/choose_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<RemoteFile> files(const std::vector<std::string>& paths) {
  std::vector<RemoteFile> out;
  for (const std::string& path : paths) out.push_back({.path = path, .size = 1 << 30});
  return out;
}

std::vector<std::string> chosen(const std::vector<std::string>& paths, const char* words) {
  std::vector<std::string> out;
  for (const RemoteFile& f : choose_files(files(paths), *parse_source(words)).files) out.push_back(f.path);
  return out;
}

std::pair<std::string, std::string> refusal(const std::vector<std::string>& paths, const char* words) {
  try {
    chosen(paths, words);
  } catch (const Error& e) {
    return {e.what(), e.hint().plain()};
  }
  return {"nothing was thrown", ""};
}

const std::vector<std::string> kKlein = {".gitattributes",
                                         "LICENSE.md",
                                         "README.md",
                                         "flux-2-klein-4b.safetensors",
                                         "model_index.json",
                                         "scheduler/scheduler_config.json",
                                         "teaser.png",
                                         "text_encoder/config.json",
                                         "text_encoder/model-00001-of-00002.safetensors",
                                         "text_encoder/model-00002-of-00002.safetensors",
                                         "text_encoder/model.safetensors.index.json",
                                         "tokenizer/merges.txt",
                                         "tokenizer/tokenizer.json",
                                         "tokenizer/chat_template.jinja",
                                         "transformer/config.json",
                                         "transformer/diffusion_pytorch_model.safetensors",
                                         "transformer/diffusion_pytorch_model.fp16.safetensors",
                                         "vae/diffusion_pytorch_model.bin",
                                         "vae/diffusion_pytorch_model.safetensors"};

TEST(ChooseFiles, PrefersTheDiffusersFolderWithoutDuplicates) {
  EXPECT_THAT(chosen(kKlein, "o/r"),
              ElementsAre("model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json",
                          "text_encoder/model.safetensors.index.json", "tokenizer/chat_template.jinja", "tokenizer/merges.txt",
                          "tokenizer/tokenizer.json", "transformer/config.json", "text_encoder/model-00001-of-00002.safetensors",
                          "text_encoder/model-00002-of-00002.safetensors", "transformer/diffusion_pytorch_model.safetensors",
                          "vae/diffusion_pytorch_model.safetensors"));
  EXPECT_THAT(choose_files(files(kKlein), *parse_source("o/r")).reason, HasSubstr("2 weight files that repeat it stay away"));
}

TEST(ChooseFiles, NamedPathsAreTakenAsTheyAre) {
  EXPECT_THAT(chosen(kKlein, "o/r::flux-2-klein-4b.safetensors"), ElementsAre("flux-2-klein-4b.safetensors"));
  EXPECT_THAT(chosen(kKlein, "o/r::vae+scheduler"),
              ElementsAre("scheduler/scheduler_config.json", "vae/diffusion_pytorch_model.safetensors"));
  EXPECT_THAT(refusal(kKlein, "o/r::vae/diffusion_pytorch_model.bin").first, HasSubstr("is not downloaded"));
  EXPECT_THAT(refusal(kKlein, "o/r::Flux-2-Klein-4b.safetensors").second,
              HasSubstr("did you mean o/r::flux-2-klein-4b.safetensors?"));
  EXPECT_THAT(refusal(kKlein, "o/r::nothing").first, HasSubstr("has no file or folder nothing"));
  EXPECT_THAT(refusal(kKlein, "o/r::teaser.png").first, HasSubstr("is not downloaded"));
}

TEST(ChooseFiles, AFoldersNameIsNotAPrefix) {
  EXPECT_THAT(chosen({"vae/a.safetensors", "vae2/b.safetensors"}, "o/r::vae"), ElementsAre("vae/a.safetensors"));
}

TEST(ChooseFiles, VariantsAreWordsOfNames) {
  const std::vector<std::string> quants = {"README.md",
                                           "config.json",
                                           "m-Q4_K_M.gguf",
                                           "m-Q4_K_S.gguf",
                                           "m-Q8_0.gguf",
                                           "m-BF16-00001-of-00002.gguf",
                                           "m-BF16-00002-of-00002.gguf"};
  EXPECT_THAT(chosen(quants, "o/r:q4_k_m"), ElementsAre("config.json", "m-Q4_K_M.gguf"));
  EXPECT_THAT(chosen(quants, "o/r:BF16"), ElementsAre("config.json", "m-BF16-00001-of-00002.gguf", "m-BF16-00002-of-00002.gguf"));
  EXPECT_THAT(refusal(quants, "o/r:Q4_K").first, HasSubstr("Q4_K matches several files"));
  EXPECT_THAT(refusal(quants, "o/r:Q4_K").second, HasSubstr("o/r::m-Q4_K_M.gguf (1.00 GiB), o/r::m-Q4_K_S.gguf"));
  EXPECT_THAT(refusal(quants, "o/r:Q5_0").first, HasSubstr("no weights with Q5_0 in their name"));
  EXPECT_THAT(refusal(quants, "o/r:4").first, HasSubstr("no weights with 4"));
  // The name that ends in the word goes before one that goes on.
  EXPECT_THAT(chosen({"flux2-dev-nvfp4-mixed.safetensors", "flux2-dev-nvfp4.safetensors"}, "o/r:nvfp4"),
              ElementsAre("flux2-dev-nvfp4.safetensors"));
  // One of each folder: they are different parts.
  EXPECT_THAT(
      chosen({"s/diffusion_models/k-fp8.safetensors", "s/text_encoders/q_fp8.safetensors", "s/text_encoders/q.safetensors"},
             "o/r:fp8"),
      ElementsAre("s/diffusion_models/k-fp8.safetensors", "s/text_encoders/q_fp8.safetensors"));
}

TEST(ChooseFiles, TheOnlyModelOfARepository) {
  EXPECT_THAT(chosen({"config.json", "tokenizer.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                      "model-00002-of-00002.safetensors", "consolidated.safetensors", "pytorch_model.bin"},
                     "o/r"),
              ElementsAre("config.json", "model.safetensors.index.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors"));
  EXPECT_THAT(chosen({"m.gguf", "README.md"}, "o/r"), ElementsAre("m.gguf"));
  EXPECT_THAT(refusal({"a.gguf", "b.gguf"}, "o/r").first, HasSubstr("2 different weight files"));
  EXPECT_THAT(refusal({"a.gguf", "b.gguf"}, "o/r").second, HasSubstr("o/r::a.gguf (1.00 GiB), o/r::b.gguf"));
  EXPECT_THAT(refusal({"pytorch_model.bin", "config.json"}, "o/r").first, HasSubstr("no safetensors or GGUF files"));
}

}  // namespace
}  // namespace flux2
