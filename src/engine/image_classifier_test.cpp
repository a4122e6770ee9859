#include "engine/image_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_classifier.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Image patterned(int width, int height, int channels, int factor) {
  Image image(width, height, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * static_cast<size_t>(factor) % 251);
  return image;
}

class Classifier : public testing::Test {
 protected:
  ~Classifier() override { fs::remove_all(folder_); }

  std::string refusal(const fs::path& file) const {
    try {
      const ImageClassifier classifier(file, 2);
    } catch (const Error& e) {
      return std::string(name_of(e.code())) + ": " + e.what();
    }
    return "";
  }
  void save(const std::vector<std::pair<std::string, Tensor>>& tensors) const {
    fs::create_directories(folder_);
    save_tensors(folder_ / "model.safetensors", tensors);
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("classifier-" + std::to_string(::getpid()));
};

// tests/parity/classifier_golden.py made the model and the values.
TEST_F(Classifier, LogitsAreThoseOfTransformers) {
  const fs::path golden = test::golden_folder() / "classifier";
  const ImageClassifier classifier(golden, 2);
  EXPECT_EQ(classifier.config().heads, 3);
  EXPECT_EQ(classifier.config().label("nsfw"), 1);
  for (const Json& run : read_json(golden / "runs.json")) {
    const auto logits = classifier.logits(patterned(run["width"], run["height"], run["channels"], run["factor"]));
    const auto wanted = run["logits"].get<std::vector<double>>();
    ASSERT_EQ(logits.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(logits[i], wanted[i], 1e-5 * std::max(1.0, std::abs(wanted[i]))) << run.dump();
  }
}

TEST_F(Classifier, TheBiasOfTheLastLayerDecides) {
  test::write_tiny_classifier(folder_, 2.0f);
  const ImageClassifier classifier(folder_ / "model.safetensors", 2);
  EXPECT_EQ(classifier.config(), test::tiny_vit_config());
  const double expected = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(classifier.probability(patterned(40, 30, 3, 7), 1), expected, 1e-12);
  EXPECT_NEAR(classifier.probability(patterned(5, 90, 4, 3), 0), 1 - expected, 1e-12);
}

TEST_F(Classifier, WithoutAConfigurationTheClassesAreThoseOfThePublishedOne) {
  VitConfig config = test::tiny_vit_config();
  config.hidden = 128, config.heads = 2;
  save(test::tiny_classifier_tensors(config, 0));
  EXPECT_EQ(detect_vit(*open_weights(folder_ / "model.safetensors")), config);
}

TEST_F(Classifier, OtherFilesAreRefusedInASentence) {
  const VitConfig config = test::tiny_vit_config();
  auto tensors = test::tiny_classifier_tensors(config, 0);
  std::erase_if(tensors, [](const auto& t) { return t.first == "vit.encoder.layer.1.output.dense.bias"; });
  save(tensors);
  EXPECT_THAT(refusal(folder_), HasSubstr("vit.encoder.layer.1.output.dense.bias [16] is missing"));

  tensors = test::tiny_classifier_tensors(config, 0);
  std::erase_if(tensors, [](const auto& t) { return t.first == "classifier.weight"; });
  save(tensors);
  EXPECT_THAT(refusal(folder_), HasSubstr("this is not an image classifier"));

  save(test::tiny_classifier_tensors(config, 0));
  for (const auto& [json, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"num_attention_heads": 3})", "cannot be divided into 3 heads"},
           {R"({"num_attention_heads": "many"})", "num_attention_heads must be a number"},
           {R"({"num_attention_heads": 2, "hidden_act": "relu"})", "only gelu is supported"},
           {R"({"num_attention_heads": 2, "id2label": {"0": "one"}})", "id2label must name each of the 2 classes"},
           {"[1]", "expected an object"}}) {
    std::ofstream(folder_ / "config.json") << json;
    EXPECT_THAT(refusal(folder_), HasSubstr(why)) << json;
  }
  std::ofstream(folder_ / "config.json") << R"({"num_attention_heads": 2})";
  std::ofstream(folder_ / "preprocessor_config.json") << R"({"image_std": [0, 0, 0]})";
  EXPECT_THAT(refusal(folder_), HasSubstr("image_std must be three numbers"));
  EXPECT_THAT(refusal(folder_ / "nothing.safetensors"), HasSubstr("nothing.safetensors"));
}

TEST_F(Classifier, ValuesThatAreNoNumbersAreAnError) {
  test::write_tiny_classifier(folder_, std::nanf(""));
  const ImageClassifier classifier(folder_, 2);
  EXPECT_THROW(classifier.probability(patterned(8, 8, 3, 1), 1), Error) << "it would count as not greater than the threshold";
}

}  // namespace
}  // namespace flux2
