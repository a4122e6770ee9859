#include "hub/synth_clip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hub/test_models.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;

double deviation_of(const WeightSource& weights, const std::string& name) {
  const Tensor t = weights.open(name);
  double squares = 0;
  for (int64_t i = 0; i < t.numel(); ++i) squares += std::pow(static_cast<double>(t.data<float>()[i]), 2);
  return std::sqrt(squares / static_cast<double>(t.numel()));
}

TEST(SynthClip, IsWhatItsConfigurationSays) {
  const fs::path folder = scratch_folder();
  const ClipConfig config = *synthetic_clip("clip-tiny");
  SynthProgress last;
  write_random_clip(folder, config, {.progress = [&](const SynthProgress& p) { last = p; }});
  EXPECT_GT(last.total, 0u);
  EXPECT_EQ(last.bytes, last.total);
  const auto weights = open_weights(folder);
  EXPECT_EQ(detect_clip(*weights), config);
  const Json written = read_json(folder / "preprocessor_config.json");
  EXPECT_EQ(written["image_mean"].dump(), "[0.48145467,0.4578275,0.40821072]") << "short, and the same floats";
  // As transformers initialises them: 1/√64, 0.02, 1/√128, 1/(√64 · √4), and 1 for norms.
  EXPECT_NEAR(deviation_of(*weights, "vision_model.embeddings.class_embedding"), 0.125, 0.05);
  EXPECT_NEAR(deviation_of(*weights, "vision_model.embeddings.patch_embedding.weight"), 0.02, 0.0005);
  EXPECT_NEAR(deviation_of(*weights, "vision_model.encoder.layers.1.mlp.fc1.weight"), 1 / std::sqrt(128.0), 0.005);
  EXPECT_NEAR(deviation_of(*weights, "vision_model.encoder.layers.1.self_attn.q_proj.weight"), 1.0 / 16, 0.005);
  EXPECT_EQ(deviation_of(*weights, "vision_model.encoder.layers.0.layer_norm1.weight"), 1);
  EXPECT_EQ(deviation_of(*weights, "vision_model.encoder.layers.0.mlp.fc2.bias"), 0);
}

TEST(SynthClip, SeedsAndTypesDiffer) {
  const fs::path folder = scratch_folder();
  const ClipConfig config = *synthetic_clip("clip-tiny");
  const auto projection = [&](const char* name, const RandomClipOptions& options) {
    write_random_clip(folder / name, config, options);
    return open_weights(folder / name)->open("visual_projection.weight");
  };
  const Tensor a = projection("a", {.seed = 1}), b = projection("b", {.seed = 2}), again = projection("again", {.seed = 1});
  EXPECT_EQ(a.to_doubles(), again.to_doubles());
  EXPECT_NE(a.to_doubles(), b.to_doubles());
  EXPECT_EQ(projection("bf16", {.seed = 1, .dtype = DType::BF16}).dtype(), DType::BF16);
  EXPECT_EQ(detect_clip(*open_weights(folder / "bf16")), config);
}

TEST(SynthClip, OtherNamesAndSizesAreRefused) {
  EXPECT_FALSE(synthetic_clip("tiny"));
  EXPECT_EQ(*synthetic_clip("clip-vit-large-patch14"), ClipConfig());
  ClipConfig config = *synthetic_clip("clip-tiny");
  config.heads = 5;
  EXPECT_NE(refusal([&] { write_random_clip(scratch_folder(), config); }).find("64 cannot be divided into 5 heads"),
            std::string::npos);
}

}  // namespace
}  // namespace flux2
