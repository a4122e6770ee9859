#include "hub/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hub/test_models.h"
#include "text/prompt.h"
#include "weights/named_weights.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::HasSubstr;

std::vector<float> floats(const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = t.dtype() == DType::F32 ? t.data<float>()[i] : to_float(t.data<bf16>()[i]);
  return values;
}

struct PartPaths {
  ModelPart part;
  const char *bfl, *diffusers;
};
constexpr PartPaths kParts[] = {{ModelPart::Transformer, "flux-2-tiny.safetensors", "transformer"},
                                {ModelPart::Autoencoder, "ae.safetensors", "vae"},
                                {ModelPart::TextEncoder, "text_encoder", "text_encoder"}};

TEST(Synth, SameCanonicalValuesInEveryLayoutAndType) {
  const fs::path folder = scratch_folder();
  tiny_model(folder / "bfl", {.dtype = DType::F32, .seed = 7});
  tiny_model(folder / "again", {.dtype = DType::F32, .seed = 7});
  tiny_model(folder / "diffusers", {.layout = SynthOptions::Layout::Diffusers, .dtype = DType::F32, .seed = 7});
  tiny_model(folder / "bf16", {.layout = SynthOptions::Layout::Diffusers, .dtype = DType::BF16, .seed = 7});
  for (const PartPaths& p : kParts) {
    const NamedWeights a(open_weights(folder / "bfl" / p.bfl), p.part),
        b(open_weights(folder / "diffusers" / p.diffusers), p.part), c(open_weights(folder / "bf16" / p.diffusers), p.part),
        again(open_weights(folder / "again" / p.bfl), p.part);
    EXPECT_EQ(a.names(), b.names());
    EXPECT_TRUE(b.unknown().empty());
    for (const std::string& name : a.names()) {
      ASSERT_EQ(a.shape(name), b.shape(name)) << name;
      if (name == "bn.num_batches_tracked") continue;
      const auto x = floats(a.open(name)), y = floats(b.open(name)), z = floats(c.open(name));
      ASSERT_EQ(x, y) << name;
      ASSERT_EQ(x, floats(again.open(name))) << name;
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(c.dtype(name) == DType::F32 ? x[i] : to_float(to_bf16(x[i])), z[i]) << name << " " << i;
    }
  }
}

TEST(Synth, SeedsAndTensorsDiffer) {
  const fs::path folder = scratch_folder();
  tiny_model(folder / "a", {.seed = 1});
  tiny_model(folder / "b", {.seed = 2});
  const auto a = open_weights(folder / "a/flux-2-tiny.safetensors"), b = open_weights(folder / "b/flux-2-tiny.safetensors");
  const auto x = floats(a->open("single_blocks.0.linear1.weight"));
  EXPECT_NE(x, floats(b->open("single_blocks.0.linear1.weight")));
  EXPECT_NE(x, floats(a->open("single_blocks.1.linear1.weight")));
}

TEST(Synth, ValuesHaveTheRequestedDistribution) {
  const fs::path folder = tiny_model(scratch_folder(), {.dtype = DType::F32});
  const auto moments = [](const std::vector<float>& v) {
    double sum = 0, squares = 0;
    for (float x : v) sum += x, squares += static_cast<double>(x) * x;
    const double n = static_cast<double>(v.size()), mean = sum / n;
    return std::pair{mean, std::sqrt(squares / n - mean * mean)};
  };
  const auto t = open_weights(folder / "flux-2-tiny.safetensors");
  // 589,824 values: the mean is known to 1/√n, the deviation to 1/√(2n).
  auto [mean, deviation] = moments(floats(t->open("single_blocks.0.linear1.weight")));
  EXPECT_NEAR(mean, 0, 5.0 / 16 / 768);
  EXPECT_NEAR(deviation, 1.0 / 16, 0.005 / 16);
  std::tie(mean, deviation) = moments(floats(t->open("single_blocks.0.linear2.weight")));
  EXPECT_NEAR(deviation, 0.5 / 32, 0.005 / 32);
  const auto scale = floats(t->open("single_blocks.0.norm.query_norm.scale"));
  for (float s : scale) EXPECT_NEAR(s, 1, 0.25);
  const auto vae = open_weights(folder / "ae.safetensors");
  EXPECT_EQ(vae->tensors().size(), 251u);
  for (float v : floats(vae->open("bn.running_var"))) EXPECT_NEAR(v, 3, 1.5);
}

TEST(Synth, GeometryCanBeChosen) {
  const fs::path folder = scratch_folder();
  SynthOptions options{.double_blocks = 2, .single_blocks = 3};
  options.transformer = Flux2Config{.hidden = 128, .text_width = 96};
  options.text_encoder = DecoderConfig{.vocab = 300,
                                       .hidden = 32,
                                       .intermediate = 64,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .layers = 5,
                                       .states = {1, 2, 3}};
  options.vae = VaeConfig{.encoder_widths = {64, 128, 256, 256}, .decoder_widths = {32, 64, 128, 128}};
  options.needed_layers_only = true;
  tiny_model(folder, options);
  const NamedWeights transformer(open_weights(folder / "flux-2-tiny.safetensors"), ModelPart::Transformer);
  const Flux2Config config = detect_flux2(transformer);
  EXPECT_EQ(config.hidden, 128);
  EXPECT_EQ(config.double_blocks, 2);
  EXPECT_EQ(config.single_blocks, 3);
  const VaeConfig vae = detect_vae(NamedWeights(open_weights(folder / "ae.safetensors"), ModelPart::Autoencoder));
  EXPECT_EQ(vae.encoder_widths, options.vae->encoder_widths);
  EXPECT_EQ(vae.decoder_widths, options.vae->decoder_widths);
  const DecoderConfig text = detect_decoder(NamedWeights(open_weights(folder / "text_encoder"), ModelPart::TextEncoder));
  EXPECT_EQ(text.layers, 3);
  EXPECT_EQ(text.hidden, 32);
}

TEST(Synth, TheTokenizerReadsPrompts) {
  const fs::path folder = tiny_model(scratch_folder());
  const BpeTokenizer tokenizer = BpeTokenizer::load(folder / "tokenizer");
  EXPECT_LE(tokenizer.vocab_size(), 512);
  const PromptTokens tokens = tokenize_prompt(tokenizer, "the cat on a träumende Straße 猫", 64);
  EXPECT_GT(tokens.real, 20);
  EXPECT_EQ(tokens.ids[0], *tokenizer.id_of("<|im_start|>"));
  const auto ids = tokenizer.encode("and the on");
  EXPECT_LT(ids.size(), 10u);  // merges apply
  EXPECT_EQ(tokenizer.decode(ids), "and the on");
}

TEST(Synth, ATokenizerCanBeCopied) {
  const fs::path folder = scratch_folder();
  tiny_model(folder / "a");
  write_file(folder / "a/tokenizer/note.txt", "copied");
  tiny_model(folder / "b", {.tokenizer = folder / "a/tokenizer"});
  EXPECT_TRUE(fs::exists(folder / "b/tokenizer/note.txt"));
}

TEST(Synth, ProgressReachesTheTotal) {
  SynthProgress last;
  synthesise_model({.out = scratch_folder()}, [&](const SynthProgress& p) { last = p; });
  EXPECT_GT(last.total, 0u);
  EXPECT_EQ(last.bytes, last.total);
}

TEST(Synth, RejectsInvalidGeometry) {
  const auto text = [](SynthOptions options) {
    options.out = scratch_folder();
    return refusal([&] { synthesise_model(options); });
  };
  EXPECT_THAT(text({.variant = "sdxl"}), HasSubstr("sdxl"));
  EXPECT_THAT(text({.transformer = Flux2Config{.hidden = 100, .text_width = 192}}), HasSubstr("100"));
  EXPECT_THAT(text({.transformer = Flux2Config{.hidden = 128, .text_width = 100}}), HasSubstr("text width 100"));
  EXPECT_THAT(text({.vae = VaeConfig{.decoder_widths = {24, 48, 96, 96}}}), HasSubstr("32 groups"));
  EXPECT_THAT(text({.dtype = DType::I8}), HasSubstr("BF16 or F32"));
}

}  // namespace
}  // namespace flux2
