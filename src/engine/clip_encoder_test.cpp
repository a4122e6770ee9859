#include "engine/clip_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "hub/synth_clip.h"
#include "image/resize.h"
#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

Image numbered(int width, int height, int channels, int factor) {
  Image image(width, height, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * static_cast<size_t>(factor) % 251);
  return image;
}

ClipConfig small_clip() {
  ClipConfig c;
  c.hidden = 16, c.intermediate = 24, c.layers = 2, c.heads = 2, c.image = 32, c.patch = 16, c.projection = 12;
  return c;
}

// The tensors of a small tower with random weights.
NamedTensors small_tensors(const fs::path& scratch) {
  write_random_clip(scratch, small_clip());
  const auto weights = open_weights(scratch / "model.safetensors");
  NamedTensors tensors;
  for (const std::string& name : weights->names()) {
    const Tensor t = weights->open(name);
    tensors.emplace_back(name, Tensor::host_copy(t.data<float>(), DType::F32, t.shape()));
  }
  return tensors;
}

class Clip : public testing::Test {
 protected:
  ~Clip() override { fs::remove_all(folder_); }

  std::string refusal() const {
    try {
      const ClipEncoder encoder(folder_, 2);
    } catch (const Error& e) {
      return std::string(name_of(e.code())) + ": " + e.what();
    }
    return "";
  }
  // What is said about the small tower after this change.
  std::string refusal_after(const std::function<void(NamedTensors&)>& change) const {
    NamedTensors tensors = small_tensors(folder_ / "whole");
    change(tensors);
    fs::create_directories(folder_);
    save_tensors(folder_ / "model.safetensors", tensors);
    std::ofstream(folder_ / "config.json") << R"({"num_attention_heads": 2})";
    return refusal();
  }
  static Tensor zeros(const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(shape.numel()));
    return Tensor::host_copy(values.data(), DType::F32, shape);
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("clip-" + std::to_string(::getpid()));
};

// tests/parity/clip_golden.py made the model, which has a text tower as well, and the values.
TEST_F(Clip, VectorsAreThoseOfTransformers) {
  const fs::path golden = test::golden_folder() / "clip";
  const ClipEncoder encoder(golden, 2);
  EXPECT_EQ(encoder.config().heads, 3);
  EXPECT_EQ(encoder.config().image, 48);
  EXPECT_EQ(encoder.width(ImageFeature::Pooled), 24);
  EXPECT_EQ(encoder.width(ImageFeature::Projected), 20);
  for (const Json& run : read_json(golden / "runs.json")) {
    const Image image = numbered(run["width"], run["height"], run["channels"], run["factor"]);
    for (const auto& [name, feature] :
         {std::pair{"pooled", ImageFeature::Pooled}, std::pair{"projected", ImageFeature::Projected}}) {
      const auto made = encoder.feature(image, feature);
      const auto wanted = run[name].get<std::vector<double>>();
      ASSERT_EQ(made.size(), wanted.size());
      double norm = 0, error = 0;
      for (size_t i = 0; i < wanted.size(); ++i)
        norm += wanted[i] * wanted[i], error += std::pow(static_cast<double>(made[i]) - wanted[i], 2);
      EXPECT_LE(std::sqrt(error / norm), 1e-5) << name << " of " << image.width << "×" << image.height;
    }
  }
}

TEST_F(Clip, ImagesOfAnyProportionsArePrepared) {
  const ClipConfig c = small_clip();
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 65000}, {65000, 1}, {2, 3}, {33, 32}, {4000, 31}}) {
    const std::vector<float> patches = clip_patches(Image(width, height, 3), c);
    ASSERT_EQ(patches.size(), 32u * 32u * 3u) << width << "×" << height;
    for (size_t i = 0; i < patches.size(); ++i)  // black
      ASSERT_NEAR(patches[i], -c.mean[i % 3] / c.deviation[i % 3], 1e-6) << width << "×" << height;
  }
  EXPECT_THROW(clip_patches(Image(), c), Error);
}

TEST_F(Clip, OnlyTheMiddleOfAnImageIsSeen) {
  ClipConfig c = small_clip();
  c.mean = {0, 0, 0}, c.deviation = {1, 1, 1};
  Image image(320, 32, 4);  // the shorter side is right, so nothing is scaled
  for (int x = 144; x < 176; ++x)
    for (int y = 0; y < 32; ++y) image.at(x, y)[1] = 255;
  const std::vector<float> patches = clip_patches(image, c);
  for (size_t i = 0; i < patches.size(); ++i) ASSERT_EQ(patches[i], i % 3 == 1 ? 1.0f : 0.0f) << i;
}

TEST_F(Clip, VectorsOfARandomTowerTellImagesApart) {
  write_random_clip(folder_, *synthetic_clip("clip-tiny"), {.seed = 1});
  const ClipEncoder encoder(folder_, 2);
  EXPECT_EQ(encoder.config(), *synthetic_clip("clip-tiny"));
  const auto coloured = [&](uint8_t red, uint8_t blue) {
    Image image(40, 30, 3);
    for (int y = 0; y < 30; ++y)
      for (int x = 0; x < 40; ++x) image.at(x, y)[0] = red, image.at(x, y)[2] = blue;
    return encoder.feature(image, ImageFeature::Pooled);
  };
  const auto a = coloured(255, 0), b = coloured(0, 255);
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  EXPECT_LT(ab / std::sqrt(aa * bb), 0.9);
  EXPECT_EQ(a, coloured(255, 0)) << "the same image gives the same vector";
}

TEST_F(Clip, DamagedFilesAreRefusedByTheNamesOfTheirTensors) {
  const std::string layer = "vision_model.encoder.layers.1.";
  const auto without = [](const std::string& name) {
    return [name](NamedTensors& tensors) { std::erase_if(tensors, [&](const auto& t) { return t.first == name; }); };
  };
  const auto with = [](const std::string& name, const Tensor& value) {
    return [=](NamedTensors& tensors) {
      std::erase_if(tensors, [&](const auto& t) { return t.first == name; });
      tensors.emplace_back(name, value);
    };
  };
  EXPECT_EQ(refusal_after([](NamedTensors&) {}), "");
  EXPECT_THAT(refusal_after(without(layer + "mlp.fc2.bias")), HasSubstr(layer + "mlp.fc2.bias [16] is missing"));
  EXPECT_THAT(refusal_after(without(layer + "layer_norm1.weight")), HasSubstr(layer + "layer_norm1.weight [16] is missing"));
  EXPECT_THAT(refusal_after(without("vision_model.pre_layrnorm.weight")),
              HasSubstr("vision_model.pre_layrnorm.weight [16] is mis"));
  EXPECT_THAT(refusal_after(without("visual_projection.weight")), HasSubstr("the tensor visual_projection.weight is missing"));
  EXPECT_THAT(refusal_after(without("vision_model.embeddings.class_embedding")), HasSubstr("this is not a CLIP vision tower"));
  EXPECT_THAT(refusal_after(with(layer + "self_attn.q_proj.weight", zeros({16, 15}))),
              HasSubstr(layer + "self_attn.q_proj.weight is [16, 15], expected [16, 16]"));
  EXPECT_THAT(refusal_after(with("vision_model.embeddings.patch_embedding.weight", zeros({16, 3, 0, 0}))),
              HasSubstr("patch_embedding.weight has the shape [16, 3, 0, 0]"));
  EXPECT_THAT(refusal_after(with("vision_model.embeddings.position_embedding.weight", zeros({0, 16}))),
              HasSubstr("position_embedding.weight has the shape [0, 16]"));
  EXPECT_THAT(refusal_after(with("vision_model.embeddings.position_embedding.weight", zeros({4, 16}))),
              HasSubstr("not one token and a square of patches"));
  EXPECT_THAT(refusal_after(with("visual_projection.weight", zeros({0, 16}))),
              HasSubstr("visual_projection.weight has the shape"));
  EXPECT_THAT(refusal_after(with("vision_model.encoder.layers.0.mlp.fc1.weight", zeros({24}))),
              HasSubstr("layers.0.mlp.fc1.weight has the shape [24]"));
  EXPECT_THAT(refusal_after(with("vision_model.head.probe", zeros({1, 1, 16}))),
              HasSubstr("vision_model.head.probe [1, 1, 16] does not belong to CLIP"));
  EXPECT_EQ(refusal_after(with("vision_model.embeddings.position_ids", zeros({1, 5}))), "") << "older files have it";
  EXPECT_EQ(refusal_after(with("text_model.final_layer_norm.bias", zeros({7}))), "") << "the text tower is ignored";
}

TEST_F(Clip, ConfigurationsThatCannotBeUsedAreRefused) {
  write_random_clip(folder_, small_clip());
  for (const auto& [json, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"num_attention_heads": 3})", "cannot be divided into 3 heads"},
           {R"({"vision_config": {"num_attention_heads": 5}})", "cannot be divided into 5 heads"},
           {R"({"vision_config": 7})", "vision_config must be an object"},
           {R"({"num_attention_heads": "many"})", "num_attention_heads must be a number"},
           {R"({"num_attention_heads": 2, "hidden_act": "relu"})", "only quick_gelu and gelu are supported"},
           {"[1]", "expected an object"}}) {
    std::ofstream(folder_ / "config.json") << json;
    EXPECT_THAT(refusal(), HasSubstr(why)) << json;
  }
  std::ofstream(folder_ / "config.json") << R"({"num_attention_heads": 2})";
  for (const auto& [json, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"image_std": [0, 0, 0]})", "image_std must be three numbers"},
           {R"({"resample": 2})", "not scaled with a bicubic filter"},
           {R"({"size": {"shortest_edge": 64}})", "size of preprocessor_config.json is {\"shortest_edge\":64}"},
           {R"({"size": {"height": 32, "width": 32}})", "size of preprocessor_config.json"},
           {R"({"crop_size": 30})", "crop_size of preprocessor_config.json is 30"}}) {
    std::ofstream(folder_ / "preprocessor_config.json") << json;
    EXPECT_THAT(refusal(), HasSubstr(why)) << json;
  }
  std::ofstream(folder_ / "preprocessor_config.json") << R"({"size": 32, "crop_size": 32})";
  EXPECT_EQ(refusal(), "") << "older files have plain numbers";
}

TEST_F(Clip, HeadsAreOfWidth64WithoutAConfiguration) {
  ClipConfig c = small_clip();
  c.hidden = 128;
  write_random_clip(folder_, c);
  fs::remove(folder_ / "config.json");
  fs::remove(folder_ / "preprocessor_config.json");
  EXPECT_EQ(ClipEncoder(folder_ / "model.safetensors", 2).config(), c);
}

TEST_F(Clip, ValuesThatAreNoNumbersAreAnError) {
  refusal_after([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors)
      if (name == "vision_model.post_layernorm.bias") {
        const std::vector<float> values(16, std::numeric_limits<float>::quiet_NaN());
        value = Tensor::host_copy(values.data(), DType::F32, {16});
      }
  });
  const ClipEncoder encoder(folder_, 2);
  EXPECT_THROW(encoder.feature(Image(8, 8, 3), ImageFeature::Projected), Error);
}

}  // namespace
}  // namespace flux2
