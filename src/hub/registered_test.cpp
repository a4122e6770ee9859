#include "hub/registered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/model_files.h"
#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RegisteredPart part(const std::string& key, const std::string& name, ComponentKind kind, const fs::path& path = {}) {
  return {.key = key, .name = name, .kind = kind, .path = path};
}

TEST(Registered, NamesKeysAndBeginnings) {
  const RegisteredParts parts({part("k1", "klein", ComponentKind::Transformer),
                               part("k2", "klein-fp8", ComponentKind::Transformer),
                               part("k3", "other", ComponentKind::Transformer), part("k4", "vae", ComponentKind::Autoencoder)});
  const auto find = [&](const char* name) {
    const RegisteredPart* found = parts.find(name, ComponentKind::Transformer);
    return found ? found->key : "none";
  };
  EXPECT_EQ(find("KLEIN"), "k1");  // whole names before beginnings
  EXPECT_EQ(find("k2"), "k2");
  EXPECT_EQ(find("Oth"), "k3");
  EXPECT_EQ(find("vae"), "none");
  EXPECT_EQ(find(""), "none");
  EXPECT_THAT(refusal([&] { find("kle"); }), AllOf(HasSubstr("InvalidArgument"), HasSubstr("klein, klein-fp8")));
  EXPECT_THAT(parts.names(ComponentKind::Autoencoder), ElementsAre("vae"));
}

struct LocateRegistered : ::testing::Test {
  fs::path folder = scratch_folder();
  // Parts in folders that are not searched.
  fs::path klein = write_stripped(folder / "1/klein-base.safetensors", transformer_tensors(klein_4b_config()));
  fs::path vae = write_stripped(folder / "2/v.safetensors", vae_tensors({}));
  fs::path wide = write_stripped(folder / "3/8b.safetensors", qwen3_tensors(4096));
  fs::path encoder = write_stripped(folder / "4/4b.safetensors", qwen3_tensors(2560));
  fs::path tokenizer = folder / "5";
  std::vector<RegisteredPart> parts;
  ModelQuery query;

  LocateRegistered() {
    write_file(folder / "toy/tokenizer.json", "{}");
    write_file(tokenizer / "tokenizer.json", std::string(2 << 20, ' '));
    parts = {
        part("a1", "my-klein", ComponentKind::Transformer, klein),   part("b1", "v", ComponentKind::Autoencoder, vae),
        part("c1", "8b", ComponentKind::TextEncoder, wide),          part("c2", "4b", ComponentKind::TextEncoder, encoder),
        part("d0", "toy", ComponentKind::Tokenizer, folder / "toy"), part("d1", "words", ComponentKind::Tokenizer, tokenizer)};
  }
  ModelFiles locate() {
    query.registered = RegisteredParts(parts);
    return locate_model(query, {});
  }
};

TEST_F(LocateRegistered, PartsAreChosenByGeometry) {
  query.model = "my-klein";
  const ModelFiles files = locate();
  EXPECT_EQ(files.transformer, klein);
  EXPECT_EQ(files.vae, vae);
  EXPECT_EQ(files.text_encoder, encoder);  // the 8B encoder is registered first and does not fit
  EXPECT_EQ(files.tokenizer, tokenizer);   // not that of a toy
  EXPECT_EQ(files.id, "flux.2-klein-base-4b");
  query.model = "a1";
  EXPECT_EQ(locate().transformer, klein);
  query.model.clear();  // the only one there is
  EXPECT_EQ(locate().transformer, klein);
  query.model = "flux.2-klein-base-4b";
  EXPECT_EQ(locate().transformer, klein);
  query.model = "myklien";
  EXPECT_THAT(refusal([&] { locate(); }), AllOf(HasSubstr("NotFound: unknown model myklien"), HasSubstr("my-klein")));
}

TEST_F(LocateRegistered, RegistryEntriesDecide) {
  parts[0].distilled = true;  // although its file is called base
  parts[0].steps = 7;
  query.model = "my-klein";
  EXPECT_EQ(locate().id, "flux.2-klein-4b");
  EXPECT_EQ(locate().defaults.steps, 7);
  query.base = true;
  EXPECT_EQ(locate().id, "flux.2-klein-base-4b");
}

TEST_F(LocateRegistered, OptionsAndEntriesNameParts) {
  const fs::path second = write_stripped(folder / "6/second.safetensors", vae_tensors({}));
  parts.push_back(part("b2", "second", ComponentKind::Autoencoder, second));
  query.model = "my-klein";
  query.vae = "second";
  EXPECT_EQ(locate().vae, second);
  query.vae.clear();
  parts[0].vae = "b2";
  EXPECT_EQ(locate().vae, second);
  query.vae = vae;
  EXPECT_EQ(locate().vae, vae);
  query.vae = "secnd";
  EXPECT_THAT(refusal([&] { locate(); }),
              AllOf(HasSubstr("the autoencoder secnd, named in the request, does not exist"), HasSubstr("second")));
  query.vae.clear();
  query.text_encoder = "8b";
  EXPECT_THAT(refusal([&] { locate(); }), AllOf(HasSubstr("width 2560"), HasSubstr("width 4096")));
}

TEST_F(LocateRegistered, ReportsAMissingFile) {
  fs::remove(klein);
  query.model = "my-klein";
  EXPECT_THAT(refusal([&] { locate(); }), AllOf(HasSubstr("is not there"), HasSubstr("models remove a1")));
}

TEST_F(LocateRegistered, SeveralAreListedByName) {
  parts.push_back(part("a2", "second", ComponentKind::Transformer,
                       write_stripped(folder / "7/x.safetensors", transformer_tensors(klein_4b_config()))));
  EXPECT_THAT(refusal([&] { locate(); }),
              AllOf(HasSubstr("several models"), HasSubstr("my-klein, second"), HasSubstr("choose one with model")));
}

}  // namespace
}  // namespace flux2
