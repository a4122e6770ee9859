#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "base/json.h"
#include "base/sha256.h"
#include "train/data/cache_state.h"
#include "train/data/caption_cache.h"
#include "train/data/latent_cache.h"
#include "train/data/test_data.h"
#include "weights/safetensors_file.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

using test::DataFolder;
using test::message_of;
using test::tiny_cache_model;
using testing::ElementsAre;
using testing::HasSubstr;

const CacheModel kKlein{"f2k4b", "flux_2_klein_4b", 512, 7680};

TEST(CacheNames, AreThoseOfMusubiTuner) {
  EXPECT_EQ(latent_file_name("cat01", {1920, 1080}, kKlein), "cat01_1920x1080_f2k4b.safetensors");
  EXPECT_EQ(latent_file_name("a_b", {64, 12345}, kKlein), "a_b_0064x12345_f2k4b.safetensors");
  EXPECT_EQ(text_file_name("cat01", kKlein), "cat01_f2k4b_te.safetensors");
  EXPECT_EQ(empty_text_file_name(kKlein), ".empty_f2k4b_te.safetensors");
}

TEST(CacheNames, AreReadBack) {
  const auto name = parse_latent_file_name("a_b_0064x12345_f2k4b.safetensors", kKlein);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "a_b");
  EXPECT_EQ(name->original, (PixelSize{64, 12345}));
  for (const char* other : {"cat_f2k4b.safetensors", "cat_64x_f2k4b.safetensors", "cat_64x64_f2k9b.safetensors",
                            "f2k4b.safetensors", "cat_64x64_f2k4b_te.safetensors", "cat_0x64_f2k4b.safetensors",
                            "cat_-1x64_f2k4b.safetensors", "cat_99999999999999999999x64_f2k4b.safetensors"})
    EXPECT_FALSE(parse_latent_file_name(other, kKlein)) << other;
}

TEST(CacheNames, KeysLoseTypeAndSize) {
  EXPECT_EQ(content_name("latents_64x48_float32"), "latents");
  EXPECT_EQ(content_name("latents_control_12_64x48_bfloat16"), "latents_control_12");
  EXPECT_EQ(content_name("flip_latents_64x48_float16"), "flip_latents");
  EXPECT_EQ(content_name("lossmask_64x48_float32"), "lossmask");
  EXPECT_EQ(content_name("ctx_vec_float8_e4m3fn"), "ctx_vec");
  EXPECT_EQ(content_name("ctx_vec_3_bfloat16"), "ctx_vec_3");
  EXPECT_EQ(content_name("ctx_vec"), "ctx_vec");
}

Latents ramp_latents(LatentSize size, float start) {
  Latents latents{size, {}};
  for (int64_t i = 0; i < kLatentChannels * size.tokens(); ++i) latents.values.push_back(start + static_cast<float>(i) / 16);
  return latents;
}

LatentCache full_cache() {
  LatentCache cache;
  cache.original = {100, 50};
  cache.target = ramp_latents({2, 3}, 1);
  cache.references = {ramp_latents({2, 3}, 2), ramp_latents({1, 4}, 3)};
  cache.flipped = ramp_latents({2, 3}, 4);
  cache.flipped_references = {ramp_latents({2, 3}, 5), ramp_latents({1, 4}, 6)};
  cache.mask = {0, 0.25f, 0.5f, 0.75f, 1, 1};
  cache.notes = {{"flux2.stamp", "x"}};
  return cache;
}

TEST(LatentCacheFile, TensorsAndMetadataAreThoseOfMusubiTuner) {
  const DataFolder folder;
  const auto path = folder / latent_file_name("a", {100, 50}, kKlein);
  write_latent_cache(path, full_cache(), kKlein);
  const SafetensorsFile file(path);
  std::vector<std::string> names;
  for (const StoredTensor& t : file.tensors()) names.push_back(t.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("latents_2x3_float32", "latents_control_0_2x3_float32",
                                                   "latents_control_1_1x4_float32", "flip_latents_2x3_float32",
                                                   "flip_latents_control_0_2x3_float32", "flip_latents_control_1_1x4_float32",
                                                   "lossmask_2x3_float32"));
  const std::map<std::string, std::string> expected = {
      {"architecture", "flux_2_klein_4b"}, {"width", "100"}, {"height", "50"}, {"format_version", "1.0.1"}, {"flux2.stamp", "x"}};
  EXPECT_EQ(file.metadata(), expected);
}

TEST(LatentCacheFile, IsReadBack) {
  const DataFolder folder;
  const auto path = folder / latent_file_name("a", {100, 50}, kKlein);
  const LatentCache written = full_cache();
  write_latent_cache(path, written, kKlein);
  const LatentSummary summary = read_latent_summary(path, kKlein);
  EXPECT_EQ(summary.original, (PixelSize{100, 50}));
  EXPECT_EQ(summary.target, (LatentSize{2, 3}));
  EXPECT_THAT(summary.references, ElementsAre(LatentSize{2, 3}, LatentSize{1, 4}));
  EXPECT_TRUE(summary.has_flip && summary.has_mask);
  const LatentCache plain = read_latent_cache(path, kKlein), flipped = read_latent_cache(path, kKlein, true);
  EXPECT_EQ(plain.target.values, written.target.values);
  EXPECT_EQ(plain.references[1].values, written.references[1].values);
  EXPECT_EQ(plain.mask, written.mask);
  EXPECT_TRUE(plain.flipped.values.empty());
  EXPECT_EQ(flipped.flipped.values, written.flipped.values);
  EXPECT_EQ(flipped.flipped_references[0].values, written.flipped_references[0].values);
}

TEST(LatentCacheFile, MayBeRounded) {
  const DataFolder folder;
  const auto path = folder / latent_file_name("a", {16, 16}, kKlein);
  LatentCache cache;
  cache.original = {16, 16};
  cache.target = ramp_latents({1, 1}, 0.1f);
  write_latent_cache(path, cache, kKlein, DType::BF16);
  EXPECT_EQ(SafetensorsFile(path).tensors()[0].name, "latents_1x1_bfloat16");
  EXPECT_EQ(read_latent_cache(path, kKlein).target.values[0], to_float(to_bf16(0.1f)));
}

TEST(LatentCacheFile, NansBecomeZero) {
  const DataFolder folder;
  const auto path = folder / latent_file_name("a", {16, 16}, kKlein);
  LatentCache cache;
  cache.original = {16, 16};
  cache.target = ramp_latents({1, 1}, 1);
  cache.target.values[3] = std::nanf("");
  test::KeptLog kept;
  write_latent_cache(path, cache, kKlein, DType::F32, kept.log());
  EXPECT_THAT(kept.warnings, ElementsAre(HasSubstr("1 of 128 values of latents are not numbers")));
  EXPECT_EQ(read_latent_cache(path, kKlein).target.values[3], 0.0f);
}

TEST(LatentCacheFile, OtherFilesAreRefusedByName) {
  const DataFolder folder;
  const auto path = folder / latent_file_name("a", {16, 16}, kKlein);
  const std::vector<float> values(2 * 128);
  const auto message = [&](const std::string& name, const Shape& shape, const std::map<std::string, std::string>& metadata) {
    save_tensors(path, {{name, Tensor::host_copy(values.data(), DType::F32, shape)}}, metadata);
    return message_of([&] { read_latent_summary(path, kKlein); });
  };
  const std::map<std::string, std::string> good = {{"architecture", "flux_2_klein_4b"}};
  EXPECT_EQ(message("latents_1x1_float32", {128, 1, 1}, good), "");
  EXPECT_THAT(message("latents_1x1_float32", {128, 1, 1}, {}), HasSubstr("name no architecture"));
  EXPECT_THAT(message("latents_1x1_float32", {128, 1, 1}, {{"architecture", "wan"}}),
              HasSubstr("a cache of wan, not of flux_2_klein_4b"));
  EXPECT_THAT(message("weights", {128, 1, 1}, good), HasSubstr("has no tensor latents_"));
  EXPECT_THAT(message("latents_1x1x1_float32", {16, 1, 16}, good), HasSubstr("has the shape [16, 1, 16]"));
  folder.text("a_0016x0016_f2k4b.safetensors", "no safetensors file at all");
  EXPECT_THAT(message_of([&] { read_latent_summary(path, kKlein); }), HasSubstr("a_0016x0016_f2k4b.safetensors"));
}

TEST(StaleReason, TellsWhatHasChanged) {
  LatentSummary found;
  found.original = {100, 100};
  found.target = {4, 4};
  found.references = {{4, 4}};
  DatasetConfig config;
  config.resolution = {64, 64};
  EXPECT_EQ(stale_reason(config, found), "");
  config.flip_aug = true;
  EXPECT_THAT(stale_reason(config, found), HasSubstr("no mirrored latents"));
  config.flip_aug = false;
  config.alpha_mask = true;
  EXPECT_EQ(stale_reason(config, found), "has no mask");
  config.alpha_mask = false;
  found.references = {{2, 4}};
  EXPECT_THAT(stale_reason(config, found), HasSubstr("has a reference at 64×32"));
  config.control_resolution = PixelSize{64, 32};
  EXPECT_EQ(stale_reason(config, found), "");
  config.resolution = {128, 64};
  EXPECT_EQ(stale_reason(config, found), "was made at 64×64, but is 128×64 now");
}

CaptionCache captions(const std::vector<std::string>& texts, float start = 0) {
  CaptionCache cache;
  cache.captions = texts;
  for (size_t k = 0; k < texts.size(); ++k) {
    cache.states.emplace_back();
    for (int i = 0; i < 24; ++i) cache.states[k].push_back(start + static_cast<float>(k) + static_cast<float>(i) / 32);
  }
  return cache;
}

std::vector<float> states_of(const std::filesystem::path& path, int64_t variant) {
  std::vector<float> values(24);
  read_caption_states(path, tiny_cache_model(), variant, values.data());
  return values;
}

// The bytes that musubi-tuner's own mem_eff_save_file writes for this tensor and these metadata.
TEST(CaptionCacheFile, HasTheBytesOfMusubiTuner) {
  const DataFolder folder;
  const auto path = folder / "a_te.safetensors";
  write_caption_cache(path, captions({"a \"fox\"\nin Übersee 🦊"}), tiny_cache_model());
  const std::string file = read_text_file(path);
  const std::string header =
      "{\"__metadata__\": {\"architecture\": \"flux_2_custom_tiny\", \"caption1\": \"a \\\"fox\\\"\\nin \\u00dcbersee "
      "\\ud83e\\udd8a\", \"format_version\": \"1.0.1\"}, \"ctx_vec_bfloat16\": {\"dtype\": \"BF16\", \"shape\": [4, 6], "
      "\"data_offsets\": [0, 48]}}";
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ((length + 8) % 256, 0u);
  EXPECT_EQ(file.size(), 8 + length + 48);
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ(file.substr(8 + header.size(), length - header.size()), std::string(length - header.size(), ' '));
}

TEST(CaptionCacheFile, IsReadBack) {
  const DataFolder folder;
  const auto path = folder / "a_te.safetensors";
  write_caption_cache(path, captions({"a fox"}), tiny_cache_model());
  const CaptionSummary summary = read_caption_summary(path, tiny_cache_model());
  EXPECT_EQ(summary.caption, "a fox");
  EXPECT_EQ(summary.variants, 0);
  EXPECT_EQ(states_of(path, 0), captions({"a fox"}).states[0]);
}

TEST(CaptionCacheFile, VariantsReplaceOneCaptionAndTheOtherWayRound) {
  const DataFolder folder;
  const auto path = folder / "a_te.safetensors";
  write_caption_cache(path, captions({"a fox"}), tiny_cache_model());
  write_caption_cache(path, captions({"a, b", "b, a"}), tiny_cache_model());
  EXPECT_EQ(read_caption_summary(path, tiny_cache_model()).variants, 2);
  EXPECT_EQ(states_of(path, 1), captions({"", ""}).states[1]);
  write_caption_cache(path, captions({"a fox"}, 7), tiny_cache_model());
  EXPECT_EQ(read_caption_summary(path, tiny_cache_model()).variants, 0);
  EXPECT_EQ(states_of(path, 0)[0], 7.0f);
}

TEST(CaptionCacheFile, OtherTensorsAndMetadataAreKept) {
  const DataFolder folder;
  const auto path = folder / "a_te.safetensors";
  const std::vector<float> values(24, 1.0f);
  save_tensors(path,
               {{"ctx_vec_float32", Tensor::host_copy(values.data(), DType::F32, {4, 6})},
                {"something_else_float32", Tensor::host_copy(values.data(), DType::F32, {24})}},
               {{"architecture", "flux_2_custom_tiny"}, {"caption1", "old"}, {"format_version", "1.0.0"}, {"note", "kept"}});
  write_caption_cache(path, captions({"new"}), tiny_cache_model());
  const SafetensorsFile file(path);
  std::vector<std::string> names;
  for (const StoredTensor& t : file.tensors()) names.push_back(t.name);
  EXPECT_THAT(names, ElementsAre("ctx_vec_bfloat16", "something_else_float32"));
  EXPECT_EQ(file.metadata().at("note"), "kept");
  EXPECT_EQ(file.metadata().at("caption1"), "new");
  EXPECT_EQ(file.metadata().at("format_version"), "1.0.1");
}

TEST(CaptionCacheFile, AnotherModelsFileIsNotOverwritten) {
  const DataFolder folder;
  const auto path = folder / "a_te.safetensors";
  CacheModel other = tiny_cache_model();
  other.full_name = "flux_2_dev";
  write_caption_cache(path, captions({"a"}), other);
  EXPECT_THAT(message_of([&] { write_caption_cache(path, captions({"a"}), tiny_cache_model()); }),
              HasSubstr("it is a cache of flux_2_dev, not of flux_2_custom_tiny"));
  EXPECT_THAT(message_of([&] { read_caption_summary(path, tiny_cache_model()); }), HasSubstr("it is a cache of flux_2_dev"));
  CacheModel wide = other;
  wide.text_width = 8;
  EXPECT_THAT(message_of([&] { read_caption_summary(path, wide); }), HasSubstr("the model needs [4, 8]"));
}

TEST(CaptionCacheFile, DamagedFilesAreWrittenAgain) {
  const DataFolder folder;
  folder.text("a_te.safetensors", "half a fi");
  test::KeptLog kept;
  write_caption_cache(folder / "a_te.safetensors", captions({"a"}), tiny_cache_model(), DType::BF16, kept.log());
  EXPECT_THAT(kept.warnings, ElementsAre(HasSubstr("is damaged and is written again")));
  EXPECT_EQ(read_caption_summary(folder / "a_te.safetensors", tiny_cache_model()).caption, "a");
}

}  // namespace
}  // namespace flux2
