#include "hub/registry/starter.h"

#include <gtest/gtest.h>

#include <set>

#include "hub/variants.h"

namespace flux2 {
namespace {

TEST(Starter, EverySetIsComplete) {
  std::set<std::string> names;
  for (const Starter& s : starters()) {
    EXPECT_TRUE(names.insert(s.name).second);
    if (s.parts.at(0).type == ModelType::Upscaler) {
      EXPECT_EQ(s.parts.size(), 1u);
      EXPECT_TRUE(s.parts[0].source.ends_with(".safetensors")) << "pickles are not installed";
      continue;
    }
    if (s.parts[0].type == ModelType::TinyVae) {
      EXPECT_EQ(s.parts.size(), 1u);
      continue;
    }
    if (s.parts[0].type == ModelType::Classifier) {
      EXPECT_EQ(s.parts.size(), 1u);
      EXPECT_NE(s.parts[0].source.find("+config.json"), std::string::npos) << "it names the classes";
      continue;
    }
    if (s.parts[0].type == ModelType::ImageEncoder) {
      EXPECT_EQ(s.parts.size(), 1u);
      EXPECT_NE(s.parts[0].source.find("+config.json+preprocessor_config.json"), std::string::npos)
          << "they name heads and colours";
      continue;
    }
    const auto variant = find_variant(s.variant);
    ASSERT_TRUE(variant) << s.name;
    ASSERT_FALSE(s.parts.empty());
    EXPECT_EQ(s.parts[0].type, ModelType::Main);
    EXPECT_EQ(s.parts[0].licence, variant->licence) << s.name;
    EXPECT_EQ(s.parts[0].gated, variant->licence != "Apache-2.0") << s.name;
    std::set<ModelType> types;
    for (const StarterPart& part : s.parts) {
      types.insert(part.type);
      EXPECT_GT(part.bytes, 1'000'000u);
      EXPECT_NE(part.source.find('/'), std::string::npos);
      if (part.type == ModelType::TextEncoder) {
        EXPECT_EQ(part.width * 3, variant->config.text_width) << s.name;
      }
    }
    EXPECT_TRUE(types.contains(ModelType::Vae));
    EXPECT_TRUE(types.contains(ModelType::TextEncoder)) << s.name;
  }
  for (const Variant& v : variants()) EXPECT_TRUE(find_starter(v.id)) << v.id;
  EXPECT_EQ(find_starter("Klein_4B"), find_starter("flux.2-klein-4b"));
  EXPECT_EQ(find_starter("klein"), nullptr);
}

TEST(Starter, FindsInstalledParts) {
  const Starter& s = *find_starter("klein-9b");
  ModelRecord main, small, vae, encoder, words;
  main.variant = "flux.2-klein-9b", main.quant = "bf16";
  small = main, small.quant = "q4_k, mixed";
  vae.type = ModelType::Vae, vae.family = "FLUX.2", vae.probe.hidden = 128;
  encoder.type = ModelType::TextEncoder, encoder.family = "Qwen3", encoder.probe.hidden = 2560;
  words.type = ModelType::Tokenizer, words.bytes = 5000;
  const auto there = [&](size_t part, const std::vector<ModelRecord>& records) {
    return record_for(s.parts[part], s, records) != nullptr;
  };
  EXPECT_TRUE(there(0, {small, main}));
  EXPECT_FALSE(there(0, {small, vae}));
  EXPECT_TRUE(there(1, {main, vae}));
  EXPECT_FALSE(there(2, {encoder}));
  encoder.probe.hidden = 4096;
  EXPECT_TRUE(there(2, {encoder}));
  EXPECT_FALSE(there(3, {words})) << "a toy's tokenizer";
  words.bytes = 16'000'000;
  EXPECT_TRUE(there(3, {words}));
}

}  // namespace
}  // namespace flux2
