// A model in every file format: the error of its weights explains the error of its images.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <random>

#include "engine/engine.h"
#include "hub/convert.h"
#include "tests/support/paths.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = test::golden_folder() / "tiny";

class Formats : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / fmt::format("flux2_formats_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::vector<float> picture(const fs::path& transformer, Quant quant = Quant::None, Profile profile = Profile::Exact) {
    const Engine engine({.device = "cpu", .threads = 2, .profile = profile, .quant = quant});
    ModelQuery query;
    query.model = kTiny.string();
    query.transformer = transformer;
    query.environment = [](const char*) -> const char* { return nullptr; };
    ModelFiles files = locate_model(query, {});
    files.defaults.text_length = 32;  // quick
    const auto model = engine.open(files, {});
    Request request;
    request.prompt = "a red fox";
    request.width = request.height = 64;
    request.steps = 2;
    request.seed = 3;
    std::vector<float> values;
    text_to_image(*model, request, {},
                  [&](const Picture& p) { values.assign(p.decoded.planes().values.begin(), p.decoded.planes().values.end()); });
    return values;
  }

  // The model with noise instead of rounding: each changed tensor is off by as much as the report says, in random directions.
  fs::path with_noise(const ConvertReport& report) const {
    std::map<std::string, double> error;
    for (const ConvertedTensor& t : report.changed) error[t.name] = t.error;
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<std::pair<std::string, Tensor>> tensors;
    const auto source = open_weights(kTiny / "flux-2-klein-tiny.safetensors");
    for (const std::string& name : source->names()) {
      std::vector<float> values = source->open(name).to_floats();
      double square = 0;
      for (const float v : values) square += static_cast<double>(v) * v;
      const auto spread = static_cast<float>(error[name] * std::sqrt(square / static_cast<double>(values.size())));
      for (float& v : values) v += spread * normal(random);
      tensors.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, source->find(name)->shape));
    }
    save_tensors(folder_ / "noise.safetensors", tensors);
    return folder_ / "noise.safetensors";
  }

  fs::path folder_;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i)
    error += std::pow(static_cast<double>(a[i]) - b[i], 2), norm += std::pow(static_cast<double>(b[i]), 2);
  return std::sqrt(error / norm);
}

TEST_F(Formats, ImageErrorsAreExplainedByWeightErrors) {
  const NamedWeights weights(open_weights(kTiny / "flux-2-klein-tiny.safetensors"), ModelPart::Transformer);
  const std::vector<float> plain = picture(kTiny / "flux-2-klein-tiny.safetensors");
  struct Case {
    FileLayout layout;
    const char *type, *name;
  };
  // The others are in bench/every_format.py.
  for (const Case& c : {Case{FileLayout::Bfl, "fp8", "fp8.safetensors"}, Case{FileLayout::Bfl, "int8", "int8.safetensors"},
                        Case{FileLayout::Comfy, "nvfp4", "nvfp4.safetensors"}, Case{FileLayout::Gguf, "q8_0", "q8_0.gguf"},
                        Case{FileLayout::Gguf, "q4_k", "q4_k.gguf"}}) {
    SCOPED_TRACE(c.name);
    const fs::path out = folder_ / c.name;
    const ConvertReport report =
        convert_model(weights, {.out = out, .choice = {.layout = c.layout, .type = quantisation_named(c.type)}, .threads = 2});
    const double off = distance(picture(out), plain), explained = distance(picture(with_noise(report)), plain);
    EXPECT_GT(off, 0) << "something was rounded";
    EXPECT_LT(off, 1.6 * explained) << "weights are off by " << report.total_error;  // 1.03 to 1.27 were seen
  }
}

TEST_F(Formats, UnroundedFormatsGiveIdenticalImages) {
  const NamedWeights weights(open_weights(kTiny / "flux-2-klein-tiny.safetensors"), ModelPart::Transformer);
  const std::vector<float> plain = picture(kTiny / "flux-2-klein-tiny.safetensors");
  convert_model(
      weights,
      {.out = folder_ / "folder", .as_folder = true, .choice = {.layout = FileLayout::Diffusers, .shard_bytes = 1 << 20}});
  EXPECT_EQ(picture(folder_ / "folder"), plain);
  convert_model(weights, {.out = folder_ / "x.gguf", .choice = {.layout = FileLayout::Gguf}});
  EXPECT_EQ(picture(folder_ / "x.gguf"), plain);
}

// An int8 file is used as stored. It gives the same image as quantising to int8 while loading, in both profiles.
TEST_F(Formats, Int8FileEqualsQuantisingWhileLoading) {
  const fs::path source = kTiny / "flux-2-klein-tiny.safetensors", out = folder_ / "int8.safetensors";
  convert_model(NamedWeights(open_weights(source), ModelPart::Transformer),
                {.out = out, .choice = {.type = quantisation_named("int8")}});
  EXPECT_EQ(NamedWeights(open_weights(out), ModelPart::Transformer).dtype("single_blocks.0.linear1.weight"), DType::I8);
  // Quant::Int8 also quantises the text encoder, so both runs ask for it.
  for (const Profile profile : {Profile::Exact, Profile::Fast})
    EXPECT_EQ(picture(out, Quant::Int8, profile), picture(source, Quant::Int8, profile));
}

}  // namespace
}  // namespace flux2
