// A language model that sees against transformers. tests/parity/vision_golden.py made the model and the values.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "base/json.h"
#include "engine/backends.h"
#include "image/vision_prep.h"
#include "model/generate_tokens.h"
#include "model/vision_tower.h"
#include "nn/load.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

constexpr int kVisionPatch = 14;
constexpr int32_t kImageToken = 10;

std::filesystem::path vision_folder() { return test::golden_folder() / "vision"; }

std::shared_ptr<const NamedWeights> vision_weights(const std::filesystem::path& folder) {
  return std::make_shared<const NamedWeights>(open_weights(folder), ModelPart::TextEncoder);
}

struct Seeing {
  explicit Seeing(const std::string& device, const std::filesystem::path& folder = vision_folder() / "model")
      : engine({.device = device, .threads = 2, .profile = Profile::Exact}),
        stream(engine.device().open_stream()),
        weights(vision_weights(folder)) {
    const DecoderConfig decoder = detect_decoder(*weights);
    language = std::make_unique<LanguageModel>(detect_language_model(*weights, decoder));
    tower = std::make_unique<VisionTower>(detect_vision(*weights, decoder));
    load_parameters(*weights, {.stream = *stream, .activations = engine.activations()}, [&](const ParameterVisitor& visitor) {
      language->visit(visitor);
      tower->visit(visitor);
    });
  }

  Tensor patches(const Image& rgb) const {
    const auto values = vision_patches(rgb, kVisionPatch);
    const auto count = static_cast<int64_t>(values.size()) / (kVisionPatch * kVisionPatch * 3);
    return Tensor::from<float>(*stream, engine.activations(), {count, kVisionPatch * kVisionPatch * 3}, values);
  }

  Engine engine;
  std::shared_ptr<Stream> stream;
  std::shared_ptr<const NamedWeights> weights;
  std::unique_ptr<LanguageModel> language;
  std::unique_ptr<VisionTower> tower;
};

Image picture_of(const Tensor& hwc) {
  Image image(static_cast<int>(hwc.dim(1)), static_cast<int>(hwc.dim(0)), static_cast<int>(hwc.dim(2)));
  std::copy_n(hwc.data<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}

const Golden& vision_golden() {
  static const Golden file("vision/images.safetensors");
  return file;
}

Image seen_image(const std::string& name) {
  return vision_image(picture_of(vision_golden()[name + ".image"]), {.longest = 224, .patch = kVisionPatch, .merge = 2});
}

TEST(Vision, ImagesArePreparedAsTransformersDoes) {
  for (const char* name : {"3x2", "5x7", "alpha", "grey", "large", "exact"}) {
    const Image prepared = seen_image(name), wanted = picture_of(vision_golden()[std::string(name) + ".bytes"]);
    ASSERT_EQ(prepared.width, wanted.width) << name;
    ASSERT_EQ(prepared.height, wanted.height) << name;
    EXPECT_EQ(prepared.pixels, wanted.pixels) << name;
  }
  for (const char* name : {"3x2", "5x7"}) {
    const Image prepared = seen_image(name);
    const auto values = vision_patches(prepared, kVisionPatch);
    const auto wanted = vision_golden()[std::string(name) + ".pixels"].to_doubles();  // [3, height, width]
    double worst = 0;
    size_t at = 0;
    for (int top = 0; top < prepared.height; top += kVisionPatch)
      for (int left = 0; left < prepared.width; left += kVisionPatch)
        for (int y = top; y < top + kVisionPatch; ++y)
          for (int x = left; x < left + kVisionPatch; ++x)
            for (int c = 0; c < 3; ++c) {
              const auto index = static_cast<size_t>((c * prepared.height + y) * prepared.width + x);
              worst = std::max(worst, std::abs(static_cast<double>(values.at(at++)) - wanted.at(index)));
            }
    EXPECT_EQ(at, wanted.size());
    EXPECT_LE(worst, 1e-6) << name;
  }
}

std::vector<std::string> vision_devices() {
  std::vector<std::string> names = {"cpu"};
  if (gpu_count() > 0) names.push_back("cuda");
  return names;
}

TEST(Vision, TowerProjectorAndTextAreThoseOfTransformers) {
  for (const std::string& device : vision_devices()) {
    const Seeing model(device);
    for (const Json& run : read_json(vision_folder() / "runs.json")) {
      const std::string name = run["image"];
      const int64_t rows = run["rows"].get<int64_t>() * 2, columns = run["columns"].get<int64_t>() * 2;
      const Tensor states = (*model.tower)(model.patches(seen_image(name)), rows, columns);
      Difference d = difference(states.to_doubles(), vision_golden()[name + ".tower"].to_doubles());
      EXPECT_LE(d.relative, 1e-5) << name << " tower: " << d.str();
      const Tensor projected = model.tower->project(states, rows, columns);
      d = difference(projected.to_doubles(), vision_golden()[name + ".projected"].to_doubles());
      EXPECT_LE(d.relative, 1e-5) << name << " projector: " << d.str();

      const auto ids = run["ids"].get<std::vector<int32_t>>();
      GenerateOptions how{.sampling = {.temperature = 0}, .max_new = 16, .images = {projected, kImageToken}};
      for (const int64_t piece : {512, 7}) {
        how.prefill_rows = piece;
        KeyCache cache(*model.stream, model.language->config.decoder, model.engine.activations(), 128);
        const Tensor scores = prompt_scores(*model.language, *model.stream, model.engine.activations(), ids, cache, how);
        d = difference(scores.to_doubles(), run["scores"].get<std::vector<double>>());
        EXPECT_LE(d.relative, 1e-5) << name << " scores: " << d.str();
        const GeneratedTokens made = generate_tokens(*model.language, *model.stream, model.engine.activations(), ids, how);
        EXPECT_EQ(made.ids, run["made"].get<std::vector<int32_t>>()) << name << " on " << device << ", pieces of " << piece;
      }
    }
  }
}

TEST(Vision, TheGeometryComesFromTheFiles) {
  const auto weights = vision_weights(vision_folder() / "model");
  const VisionConfig c = detect_vision(*weights, detect_decoder(*weights));
  EXPECT_EQ(c, (VisionConfig{.hidden = 32, .intermediate = 64, .layers = 3, .heads = 2, .image = 224, .text_hidden = 48}));
  EXPECT_TRUE(weights->has("lm_head.weight"));
}

// The names that newer versions of transformers write: the output matrix and the tower outside the prefix of the layers.
TEST(Vision, OtherNamesAreTheSameModel) {
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("vision-names-{}", ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto source = open_weights(vision_folder() / "model");
  std::vector<SafetensorsWriter::Declared> declared;
  const auto renamed = [](std::string name) {
    if (name == "language_model.lm_head.weight") return std::string("lm_head.weight");
    if (name.starts_with("language_model.model.")) return "model.language_model." + name.substr(21);
    return "model." + name;
  };
  for (const StoredTensor& t : source->tensors()) declared.push_back({renamed(t.name), DType::F32, t.shape});
  SafetensorsWriter writer(folder / "model.safetensors", declared, {});
  for (const auto& d : writer.tensors())
    for (const StoredTensor& t : source->tensors())
      if (renamed(t.name) == d.name) {
        const Tensor values = source->open(t.name).contiguous();
        writer.write(d.name, {static_cast<const std::byte*>(values.raw()), static_cast<size_t>(values.bytes())});
      }
  writer.commit();
  std::filesystem::copy_file(vision_folder() / "model/config.json", folder / "config.json");
  const Seeing model("cpu", folder);
  const Json run = read_json(vision_folder() / "runs.json")[0];
  const Tensor projected = model.tower->project((*model.tower)(model.patches(seen_image("3x2")), 6, 4), 6, 4);
  EXPECT_EQ(generate_tokens(*model.language, *model.stream, model.engine.activations(), run["ids"].get<std::vector<int32_t>>(),
                            {.sampling = {.temperature = 0}, .max_new = 16, .images = {projected, kImageToken}})
                .ids,
            run["made"].get<std::vector<int32_t>>());
  std::filesystem::remove_all(folder);
}

TEST(Vision, AFileWithoutATowerSaysSo) {
  const auto weights = vision_weights(test::golden_folder() / "language" / "mistral");
  EXPECT_FALSE(has_vision(*weights));
  try {
    detect_vision(*weights, detect_decoder(*weights));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_THAT(e.what(), HasSubstr("cannot look at images"));
    EXPECT_THAT(e.hint().plain(), HasSubstr("FLUX.2-dev"));
  }
}

}  // namespace
}  // namespace flux2
