#include "hub/create_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/convert.h"
#include "hub/model_files.h"
#include "hub/test_models.h"
#include "model/vae_config.h"
#include "tests/support/paths.h"
#include "weights/named_weights.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::HasSubstr;

TEST(CreateModel, TheDefaultHasTheTensorsOfTheBundledModel) {
  const fs::path folder = scratch_folder();
  SynthOptions options = model_from_description(Json::object());
  options.out = folder;
  options.tokenizer = test::pico_folder() / "tokenizer";
  synthesise_model(options);
  const std::pair<const char*, ModelPart> parts[] = {{"flux-2-pico.safetensors", ModelPart::Transformer},
                                                     {"ae.safetensors", ModelPart::Autoencoder},
                                                     {"text_encoder/model.safetensors", ModelPart::TextEncoder}};
  for (const auto& [file, part] : parts) {
    const NamedWeights made(open_weights(folder / file), part), bundled(open_weights(test::pico_folder() / file), part);
    EXPECT_EQ(made.names(), bundled.names()) << file;
    for (const std::string& name : bundled.names()) EXPECT_EQ(made.shape(name), bundled.shape(name)) << file << " " << name;
  }
  ModelQuery query;
  query.environment = [](const char*) -> const char* { return nullptr; };
  query.bundled = folder;
  const ModelFiles made = locate_model(query, {});
  query.bundled = test::pico_folder();
  const ModelFiles bundled = locate_model(query, {});
  EXPECT_EQ(made.defaults.steps, 20);
  EXPECT_EQ(made.defaults.guidance, bundled.defaults.guidance);
  EXPECT_EQ(made.defaults.width, bundled.defaults.width);
  EXPECT_EQ(made.defaults.text_length, bundled.defaults.text_length);
  EXPECT_EQ(made.defaults.text_layers, bundled.defaults.text_layers);
  EXPECT_FALSE(made.distilled);
}

TEST(CreateModel, TheGroupsOfTheNormsAreInTheFile) {
  const fs::path folder = scratch_folder();
  EXPECT_EQ(model_from_description(Json::object()).vae->norm_groups, 8) << "four channels in a group";
  EXPECT_EQ(model_from_description({{"autoencoder", {{"width", 256}}}}).vae->norm_groups, 32) << "as in FLUX.2";
  SynthOptions options = model_from_description({{"autoencoder", {{"norm_groups", 8}}}});
  options.out = folder;
  options.tokenizer = test::pico_folder() / "tokenizer";
  synthesise_model(options);
  const NamedWeights made(open_weights(folder / "ae.safetensors"), ModelPart::Autoencoder);
  EXPECT_EQ(detect_vae(made).norm_groups, 8);
  const NamedWeights published(open_weights(test::golden_folder() / "tiny/ae.safetensors"), ModelPart::Autoencoder);
  EXPECT_EQ(detect_vae(published).norm_groups, 32) << "files of others say nothing";
  for (const auto& [name, layout] : {std::pair{"x.gguf", FileLayout::Gguf}, {"x.safetensors", FileLayout::Diffusers}}) {
    ConvertOptions convert{.out = folder / name};
    convert.choice.layout = layout;
    convert_model(made, convert);
    EXPECT_EQ(detect_vae(NamedWeights(open_weights(convert.out), ModelPart::Autoencoder)).norm_groups, 8) << name;
  }
  options.vae->norm_groups = 24;
  synthesise_model(options);
  EXPECT_THROW(detect_vae(NamedWeights(open_weights(folder / "ae.safetensors"), ModelPart::Autoencoder)), Error);
}

TEST(CreateModel, MistakesAreNamed) {
  const auto error = [](const Json& description) -> std::string {
    try {
      model_from_description(description);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error(Json::array()), HasSubstr("is a table"));
  EXPECT_THAT(error({{"transfomer", Json::object()}}), HasSubstr("did you mean \"transformer\"?"));
  EXPECT_THAT(error({{"transformer", {{"hiden", 256}}}}), HasSubstr("\"transformer.hiden\"; did you mean \"hidden\"?"));
  EXPECT_THAT(error({{"transformer", {{"hidden", "wide"}}}}), HasSubstr("transformer.hidden: must be a whole number"));
  EXPECT_THAT(error({{"text_encoder", {{"states", {4, 2}}}}}), HasSubstr("must be ascending"));
  EXPECT_THAT(error({{"text_encoder", {{"states", {2, 9}}}}}), HasSubstr("there is no layer 9"));
  EXPECT_THAT(error({{"text_encoder", {{"kv_heads", 3}}}}), HasSubstr("must be a multiple"));
  EXPECT_THAT(error({{"name", "../x"}}), HasSubstr("a name has lower-case letters"));
  EXPECT_THAT(error({{"defaults", {{"width", 100}}}}), HasSubstr("multiples of 16"));
  EXPECT_THAT(error({{"autoencoder", {{"norm_groups", 24}}}}), HasSubstr("must be a multiple of norm_groups (24)"));
  EXPECT_EQ(error({{"name", "mini"}, {"autoencoder", {{"width", 64}}}}), "");
}

}  // namespace
}  // namespace flux2
