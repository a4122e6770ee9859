#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "hub/model_files.h"
#include "hub/test_models.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Locate : public ::testing::Test {
 protected:
  Locate() : folder(scratch_folder()) {
    query.environment = [this](const char* name) -> const char* {
      const auto at = environment.find(name);
      return at == environment.end() ? nullptr : at->second.c_str();
    };
  }

  ModelFiles locate() { return locate_model(query, {}); }
  std::string refused() {
    return refusal([&] { locate(); });
  }

  // A klein of published size whose weights take no space on disk, in the layout of BFL's repositories.
  fs::path klein(const fs::path& root, const std::string& file, const Flux2Config& config) {
    write_stripped(root / file, transformer_tensors(config));
    write_stripped(root / "vae/diffusion_pytorch_model.safetensors", vae_tensors({}));
    write_stripped(root / "text_encoder/model.safetensors", qwen3_tensors(config.text_width / 3));
    write_file(root / "text_encoder/config.json", "{}");
    write_file(root / "tokenizer/tokenizer.json", "{}");
    return root;
  }

  fs::path folder;
  std::map<std::string, std::string> environment;
  ModelQuery query;
};

TEST_F(Locate, FoldersOfBothLayouts) {
  for (const auto layout : {SynthOptions::Layout::Bfl, SynthOptions::Layout::Diffusers}) {
    const bool diffusers = layout == SynthOptions::Layout::Diffusers;
    const fs::path root = tiny_model(folder / (diffusers ? "d" : "b"), {.layout = layout, .base = true});
    query.model = root.string();
    const ModelFiles files = locate();
    EXPECT_EQ(files.transformer, root / (diffusers ? "transformer" : "flux-2-tiny.safetensors"));
    EXPECT_EQ(files.vae, root / (diffusers ? "vae" : "ae.safetensors"));
    EXPECT_EQ(files.text_encoder, root / "text_encoder");
    EXPECT_EQ(files.tokenizer, root / "tokenizer");
    EXPECT_EQ(files.id, "tiny");
    EXPECT_FALSE(files.distilled);
    EXPECT_FALSE(files.bundled);
    EXPECT_EQ(files.defaults.text_length, 64);
    EXPECT_EQ(files.defaults.steps, 50);
    EXPECT_EQ(files.defaults.guidance_kind, ModelDefaults::TrueCfg);
    EXPECT_THAT(files.defaults.text_layers, ::testing::ElementsAre(2, 4, 6));
    EXPECT_FALSE(files.reasons.empty());
  }
}

TEST_F(Locate, BothLayoutsSideBySidePreferWhatTheIndexNames) {
  const fs::path root = tiny_model(folder, {.layout = SynthOptions::Layout::Diffusers});
  fs::copy(root / "transformer/diffusion_pytorch_model.safetensors", root / "flux-2-tiny.safetensors");
  query.model = root.string();
  EXPECT_EQ(locate().transformer, root / "transformer");
  query.model = (root / "flux-2-tiny.safetensors").string();
  EXPECT_EQ(locate().transformer, root / "flux-2-tiny.safetensors");
}

TEST_F(Locate, ASingleFileFindsItsParts) {
  const fs::path root = tiny_model(folder);
  query.model = (root / "flux-2-tiny.safetensors").string();
  const ModelFiles files = locate();
  EXPECT_EQ(files.vae, root / "ae.safetensors");
  EXPECT_EQ(files.tokenizer, root / "tokenizer");
}

TEST_F(Locate, PartsNamedOnTheCommandLine) {
  const fs::path a = tiny_model(folder / "a"), b = tiny_model(folder / "b", {.seed = 1});
  query.transformer = a / "flux-2-tiny.safetensors";
  query.vae = b / "ae.safetensors";
  query.text_encoder = b / "text_encoder/model.safetensors";
  query.tokenizer = b / "tokenizer/tokenizer.json";
  fs::remove(a / "model_index.json");
  fs::remove(a / "ae.safetensors");
  const std::string text = refused();
  // Without its index, the tiny model is treated like a published one, which needs the outputs of layers 9, 18 and 27.
  EXPECT_THAT(text, HasSubstr("has 7 layers, but the model needs the output of layer 27"));
  query.model = b.string();
  const ModelFiles files = locate();
  EXPECT_EQ(files.transformer, a / "flux-2-tiny.safetensors");
  EXPECT_EQ(files.vae, b / "ae.safetensors");
  EXPECT_EQ(files.text_encoder, b / "text_encoder/model.safetensors");
  EXPECT_EQ(files.tokenizer, b / "tokenizer/tokenizer.json");
}

TEST_F(Locate, WarnsIfNothingSaysHowAModelWasTrained) {
  std::vector<std::string> warnings;
  const auto located = [&](const std::string& file, std::optional<bool> base = {}) {
    query.model = (klein(folder / file, file + ".safetensors", klein_4b_config()) / (file + ".safetensors")).string();
    query.base = base;
    warnings.clear();
    locate_model(query, Log([&](LogLevel level, const std::string& text) {
                   if (level == LogLevel::Warning) warnings.push_back(text);
                 }));
    return warnings;
  };
  EXPECT_THAT(located("merged"), ::testing::ElementsAre(HasSubstr("taken for a distilled model")));
  EXPECT_THAT(located("flux-2-klein-4b"), ::testing::IsEmpty()) << "the name of the published model";
  EXPECT_THAT(located("merged", true), ::testing::IsEmpty());
}

TEST_F(Locate, EveryVariableOfTheReference) {
  const fs::path small = klein(folder / "small", "x.safetensors", klein_4b_config());
  const fs::path large = klein(folder / "large", "x.safetensors", klein_9b_config());
  const fs::path other = klein(folder / "other", "y.safetensors", klein_4b_config());
  const fs::path other_large = klein(folder / "other-large", "y.safetensors", klein_9b_config());
  const struct {
    const char *variable, *id;
    fs::path root;
  } cases[] = {{"KLEIN_4B_MODEL_PATH", "flux.2-klein-4b", small},
               {"KLEIN_9B_MODEL_PATH", "flux.2-klein-9b", large},
               {"KLEIN_4B_BASE_MODEL_PATH", "flux.2-klein-base-4b", small},
               {"KLEIN_9B_BASE_MODEL_PATH", "flux.2-klein-base-9b", large}};
  for (const auto& c : cases)
    for (const bool named : {false, true}) {
      environment = {{c.variable, (c.root / "x.safetensors").string()}, {"FLUX2_MODEL_PATH", ""}};
      query.model = named ? c.id : "";
      const ModelFiles files = locate();
      EXPECT_EQ(files.id, c.id);
      EXPECT_EQ(files.transformer, c.root / "x.safetensors");
      EXPECT_EQ(files.vae, c.root / "vae/diffusion_pytorch_model.safetensors");
      EXPECT_EQ(files.distilled, std::string(c.id).find("base") == std::string::npos);
      EXPECT_EQ(files.defaults.steps, files.distilled ? 4 : 50);
    }
  query.model.clear();
  environment = {{"KLEIN_4B_MODEL_PATH", (small / "x.safetensors").string()},
                 {"AE_MODEL_PATH", (other / "vae").string()},
                 {"QWEN3_4B_PATH", (other / "text_encoder").string()},
                 {"QWEN3_4B_TOKENIZER_PATH", (other / "tokenizer").string()},
                 {"QWEN3_8B_PATH", (other_large / "text_encoder").string()}};
  ModelFiles files = locate();
  EXPECT_EQ(files.vae, other / "vae");
  EXPECT_EQ(files.text_encoder, other / "text_encoder");
  EXPECT_EQ(files.tokenizer, other / "tokenizer");

  environment["KLEIN_9B_MODEL_PATH"] = (large / "x.safetensors").string();
  environment["QWEN3_8B_TOKENIZER_PATH"] = (other_large / "tokenizer").string();
  query.model = "klein-9b";
  files = locate();
  EXPECT_EQ(files.text_encoder, other_large / "text_encoder");
  EXPECT_EQ(files.tokenizer, other_large / "tokenizer");

  // The command line takes precedence.
  query.model = (small / "x.safetensors").string();
  query.vae = small / "vae";
  EXPECT_EQ(locate().vae, small / "vae");
}

TEST_F(Locate, FolderWithTheReferencesFiles) {
  const fs::path root = klein(folder / "weights", "flux-2-klein-base-4b.safetensors", klein_4b_config());
  environment["FLUX_WEIGHTS_PATH"] = root.string();
  EXPECT_EQ(locate().id, "flux.2-klein-base-4b");
  write_stripped(root / "flux-2-klein-4b.safetensors", transformer_tensors(klein_4b_config()));
  EXPECT_THAT(refused(), AllOf(HasSubstr("several models are installed"), HasSubstr("choose one with model")));
  query.model = "klein-4b";
  EXPECT_EQ(locate().transformer, root / "flux-2-klein-4b.safetensors");
  query.model = "klein-base-4b";
  EXPECT_EQ(locate().transformer, root / "flux-2-klein-base-4b.safetensors");
}

TEST_F(Locate, InstalledFoldersByRepositoryName) {
  klein(folder / "models/FLUX.2-klein-4B", "flux-2-klein-4b.safetensors", klein_4b_config());
  klein(folder / "models/flux.2-klein-base-4b", "model.safetensors", klein_4b_config());
  query.folders = {folder / "nowhere", folder / "models"};
  query.model = "FLUX.2-klein-4B";
  EXPECT_EQ(locate().transformer, folder / "models/FLUX.2-klein-4B/flux-2-klein-4b.safetensors");
  query.model = "klein-base-4b";
  EXPECT_EQ(locate().transformer, folder / "models/flux.2-klein-base-4b/model.safetensors");
  query.model = "klein-9b";
  EXPECT_THAT(refused(), AllOf(HasSubstr("NotFound"), HasSubstr("flux.2-klein-9b is not installed"), HasSubstr("models"),
                               HasSubstr("models install flux.2-klein-9b")));
}

TEST_F(Locate, RoleFoldersOfOtherTools) {
  const fs::path root = folder / "comfy";
  write_stripped(root / "unet/flux-2-klein-9b.safetensors", transformer_tensors(klein_9b_config()));
  write_stripped(root / "vae/flux1-ae.safetensors", vae_tensors({.latent_channels = 16}));
  write_stripped(root / "vae/flux2-vae.safetensors", vae_tensors({}));
  write_stripped(root / "clip/qwen_3_4b.safetensors", qwen3_tensors(2560));
  write_stripped(root / "text_encoders/qwen_3_8b.safetensors", qwen3_tensors(4096));
  write_file(root / "tokenizer/vocab.json", "{}");
  write_file(root / "tokenizer/merges.txt", "");
  query.folders = {root};
  query.model = "klein-9b";
  const ModelFiles files = locate();
  EXPECT_EQ(files.transformer, root / "unet/flux-2-klein-9b.safetensors");
  EXPECT_EQ(files.vae, root / "vae/flux2-vae.safetensors");
  EXPECT_EQ(files.text_encoder, root / "text_encoders/qwen_3_8b.safetensors");
  EXPECT_EQ(files.tokenizer, root / "tokenizer");
}

TEST_F(Locate, FallsBackToTheBundledModel) {
  query.bundled = tiny_model(folder / "tiny");
  query.folders = {folder / "models"};
  environment["AE_MODEL_PATH"] = write_stripped(folder / "ae.safetensors", vae_tensors({})).string();
  const ModelFiles files = locate();
  EXPECT_TRUE(files.bundled);
  EXPECT_EQ(files.vae, query.bundled / "ae.safetensors");  // parts of published models do not fit it
  query.model = "tiny";
  EXPECT_TRUE(locate().bundled);
  query.model.clear();
  klein(folder / "models/FLUX.2-klein-4B", "flux-2-klein-4b.safetensors", klein_4b_config());
  EXPECT_EQ(locate().id, "flux.2-klein-4b");
}

TEST_F(Locate, UserCanForceBase) {
  query.model = klein(folder / "m", "base.safetensors", klein_4b_config()).string();
  EXPECT_EQ(locate().id, "flux.2-klein-base-4b");
  query.base = false;
  EXPECT_EQ(locate().id, "flux.2-klein-4b");
}

TEST_F(Locate, ErrorsGiveAReason) {
  query.folders = {folder / "models"};
  EXPECT_THAT(refused(), AllOf(HasSubstr("no model is installed"), HasSubstr((folder / "models").string()),
                               HasSubstr("models install flux.2-klein-4b")));
  query.model = "klien-4b";
  EXPECT_THAT(refused(),
              AllOf(HasSubstr("unknown model klien-4b"), HasSubstr("flux.2-klein-4b, "), HasSubstr("flux.2-klein-9b")));
  query.model = "some/where.safetensors";
  EXPECT_THAT(refused(), HasSubstr("some/where.safetensors does not exist"));
  query.model = "klein-4b";
  environment["KLEIN_4B_MODEL_PATH"] = "/no/such/file";
  EXPECT_THAT(refused(), HasSubstr("KLEIN_4B_MODEL_PATH is set to /no/such/file, which does not exist"));
  environment["KLEIN_4B_MODEL_PATH"] = (klein(folder / "9", "x.safetensors", klein_9b_config()) / "x.safetensors").string();
  EXPECT_THAT(refused(), HasSubstr("KLEIN_4B_MODEL_PATH should name a klein 4B model"));
}

TEST_F(Locate, RefusesMissingParts) {
  const fs::path root = klein(folder / "m", "flux-2-klein-4b.safetensors", klein_4b_config());
  query.model = root.string();
  fs::remove_all(root / "vae");
  EXPECT_THAT(refused(), AllOf(HasSubstr("the autoencoder of klein 4B is missing"), HasSubstr(root.string()),
                               HasSubstr("models install flux.2-klein-4b"), HasSubstr("name it with vae")));
  write_stripped(root / "vae/diffusion_pytorch_model.safetensors", vae_tensors({.latent_channels = 16}));
  EXPECT_THAT(refused(), HasSubstr("decoder.conv_in.weight takes 16 latent channels; FLUX.2 needs 32"));
  write_stripped(root / "vae/diffusion_pytorch_model.safetensors", vae_tensors({}));
  fs::remove_all(root / "tokenizer");
  EXPECT_THAT(refused(), HasSubstr("the tokenizer of klein 4B is missing"));
  fs::remove_all(root / "text_encoder");
  EXPECT_THAT(refused(), HasSubstr("the text encoder of klein 4B is missing"));
  query.need_text_encoder = false;
  EXPECT_TRUE(locate().text_encoder.empty());
}

TEST_F(Locate, RefusesWrongTextEncoders) {
  query.model = klein(folder / "m", "flux-2-klein-4b.safetensors", klein_4b_config()).string();
  query.text_encoder = write_stripped(folder / "8b.safetensors", qwen3_tensors(4096));
  EXPECT_THAT(refused(), AllOf(HasSubstr("Incompatible"), HasSubstr("klein 4B needs Qwen3-4B (width 2560)"),
                               HasSubstr("8b.safetensors has width 4096 (Qwen3-8B)"), HasSubstr("models install")));
  auto mistral = qwen3_tensors(5120, 30);
  std::erase_if(mistral,
                [](const Stripped& t) { return t.name.ends_with("q_norm.weight") || t.name.ends_with("k_norm.weight"); });
  query.text_encoder = write_stripped(folder / "mistral.safetensors", mistral);
  EXPECT_THAT(refused(), AllOf(HasSubstr("width 2560"), HasSubstr("width 5120 (Mistral-Small-24B)")));
  query.text_encoder = write_stripped(folder / "t5.safetensors", {{"encoder.block.0.layer.0.SelfAttention.q.weight", {4, 4}}});
  EXPECT_THAT(refused(), HasSubstr("FLUX.2 does not use T5/CLIP"));
}

TEST_F(Locate, RefusesForeignModels) {
  query.model = write_stripped(folder / "flux1-dev.safetensors", {{"vector_in.in_layer.weight", {3072, 768}}}).string();
  EXPECT_THAT(refused(),
              AllOf(HasSubstr("Incompatible"), HasSubstr("this is a FLUX.1 model"), HasSubstr("flux1-dev.safetensors")));
  query.model = write_stripped(folder / "lora.safetensors", {{"txt_in.lora_A.weight", {4, 7680}}}).string();
  EXPECT_THAT(refused(), HasSubstr("is a FLUX.2 adapter, not a transformer"));
}

TEST_F(Locate, DevNeedsMistral) {
  write_stripped(folder / "flux2-dev.safetensors", transformer_tensors(dev_config()));
  write_stripped(folder / "ae.safetensors", vae_tensors({}));
  environment["FLUX2_MODEL_PATH"] = (folder / "flux2-dev.safetensors").string();
  EXPECT_THAT(refused(), AllOf(HasSubstr("the text encoder of dev is missing"), HasSubstr("models install flux.2-dev")));
  query.text_encoder = write_stripped(folder / "qwen.safetensors", qwen3_tensors(5120, 36));
  EXPECT_THAT(refused(), AllOf(HasSubstr("dev needs Mistral-Small-24B"), HasSubstr("Qwen3-14B or 32B")));
  query.text_encoder.clear();
  query.need_text_encoder = false;
  const ModelFiles files = locate();
  EXPECT_EQ(files.id, "flux.2-dev");
  EXPECT_EQ(files.defaults.guidance_kind, ModelDefaults::Embedded);
}

TEST_F(Locate, DamagedIndexIsNamed) {
  query.model = tiny_model(folder).string();
  write_file(folder / "model_index.json", R"({"flux2": {"text_layers": [4, 2]}})");
  EXPECT_THAT(refused(), AllOf(HasSubstr("BadFile"), HasSubstr("text_layers")));
  write_file(folder / "model_index.json", R"({"flux2": {"steps": "many"}})");
  EXPECT_THAT(refused(), HasSubstr("steps must be a number"));
  write_file(folder / "model_index.json", "[");
  EXPECT_THAT(refused(), HasSubstr("model_index.json"));
}

TEST_F(Locate, TheBundledPico) {
  query.bundled = test::pico_folder();
  if (!fs::exists(query.bundled)) GTEST_SKIP() << "models/pico is not there";
  const ModelFiles files = locate();
  EXPECT_EQ(files.id, "pico");
  EXPECT_EQ(files.defaults.steps, 20);
  EXPECT_EQ(files.defaults.guidance, 4);
  EXPECT_EQ(files.defaults.width, 128);
  EXPECT_EQ(files.defaults.guidance_kind, ModelDefaults::TrueCfg);
}

TEST_F(Locate, TheBundledModelOfFourStepsBorrowsParts) {
  query.bundled = test::pico_folder().parent_path() / "pico-4-steps";
  const ModelFiles files = locate();
  EXPECT_EQ(files.id, "pico-4-steps");
  EXPECT_EQ(files.defaults.steps, 4);
  EXPECT_TRUE(files.distilled);
  EXPECT_EQ(files.vae, test::pico_folder() / "ae.safetensors");
  EXPECT_EQ(files.text_encoder, test::pico_folder() / "text_encoder");
  EXPECT_EQ(files.tokenizer, test::pico_folder() / "tokenizer");
  query.model = "pico";
  const ModelFiles lender = locate();
  EXPECT_TRUE(lender.bundled);
  EXPECT_FALSE(lender.distilled);
  EXPECT_EQ(lender.defaults.steps, 20);

  // Copies run like the model they come from. Only the distilled one says so in its metadata.
  const fs::path copies[] = {folder / "a.safetensors", folder / "b.safetensors"};
  fs::copy(lender.transformer, copies[0]);
  fs::copy(files.transformer, copies[1]);
  query.model = copies[0];
  EXPECT_EQ(locate().defaults.steps, 20);
  query.model = copies[1];
  EXPECT_EQ(locate().defaults.steps, 4);
  EXPECT_EQ(locate().vae, files.vae);
}

TEST_F(Locate, PartsAreBorrowedFromAFolderBesideTheModelOnly) {
  const fs::path tiny = tiny_model(folder / "models/lender"), borrower = folder / "models/borrower";
  fs::create_directories(borrower);
  fs::rename(tiny / "flux-2-tiny.safetensors", borrower / "flux-2-other.safetensors");
  Json index = read_json(tiny / "model_index.json");
  const auto borrow_from = [&](const std::string& name) {
    index["flux2"]["parts_from"] = name;
    write_file(borrower / "model_index.json", index.dump());
  };
  query.model = borrower;
  borrow_from("lender");
  EXPECT_EQ(locate().vae, tiny / "ae.safetensors");
  for (const char* name : {"../lender", "..", ".", "", "/etc", "lender/"}) {
    borrow_from(name);
    EXPECT_THAT(refused(), AllOf(HasSubstr("BadFile"), HasSubstr("parts_from"))) << name;
  }
  borrow_from("nobody");
  EXPECT_THAT(refused(), HasSubstr("is missing"));
}

TEST_F(Locate, AFileConvertedFromTheBundledModelRunsWithItsParts) {
  query.bundled = test::pico_folder();
  if (!fs::exists(query.bundled)) GTEST_SKIP() << "models/pico is not there";
  const ModelFiles bundled = locate();
  const std::string copy = (folder / "pico-copy.safetensors").string();
  fs::copy(bundled.transformer, copy);
  query.model = copy;
  EXPECT_EQ(locate().vae, bundled.vae);
  EXPECT_EQ(locate().defaults.steps, bundled.defaults.steps);
  query.model = "pico";
  query.transformer = copy;
  const ModelFiles both = locate();
  EXPECT_EQ(both.transformer, copy);
  EXPECT_EQ(both.text_encoder, bundled.text_encoder);
  EXPECT_EQ(both.defaults.width, 128);
}

TEST_F(Locate, ExactNameWinsOverAPrefix) {
  query.bundled = test::pico_folder();
  if (!fs::exists(query.bundled)) GTEST_SKIP() << "models/pico is not there";
  query.registered =
      RegisteredParts({{.key = "0123456789", .name = "pico-q4", .kind = ComponentKind::Transformer, .path = tiny_model(folder)}});
  query.model = "pico";
  EXPECT_TRUE(locate().bundled);
}

TEST_F(Locate, AModelNameAndAFileOfAnotherModelAreRefused) {
  query.bundled = test::pico_folder();
  if (!fs::exists(query.bundled)) GTEST_SKIP() << "models/pico is not there";
  query.transformer = locate().transformer;
  query.model = "klein-4b";
  EXPECT_THAT(refused(), AllOf(HasSubstr("Incompatible"), HasSubstr("klein-4b")));
}

}  // namespace
}  // namespace flux2
