#include "model/image_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

using Shapes = std::map<std::string, Shape>;

Shapes shapes_of(const ImagePromptConfig& config, const std::string& prefix = "image_proj.") {
  Shapes shapes;
  ImagePromptNetwork(config).visit([&](const Parameter& p) {
    const std::string canonical = "image_proj.";
    shapes[p.name.starts_with(canonical) ? prefix + p.name.substr(canonical.size()) : p.name] = p.shape;
  });
  return shapes;
}

// A source of headers alone: nothing is opened.
WeightSource source_of(const Shapes& shapes, const std::map<std::string, std::string>& metadata = {}) {
  std::vector<StoredTensor> tensors;
  for (const auto& [name, shape] : shapes) {
    StoredTensor t;
    t.name = name;
    t.shape = shape;
    t.dtype = DType::F32;
    t.dtype_name = "F32";
    tensors.push_back(t);
  }
  return {std::move(tensors), metadata, "test.safetensors"};
}

std::string failure_of(const WeightSource& source) {
  try {
    detect_image_prompt(source);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

const ImagePromptConfig kDecoupled{.feature_width = 64,
                                   .hidden = 256,
                                   .tokens = 4,
                                   .double_blocks = 3,
                                   .form = ImagePromptForm::Decoupled,
                                   .feature = ImageFeature::Projected,
                                   .encoder = "clip-tiny"};

TEST(ImagePrompt, TensorsAndMetadataGiveTheGeometry) {
  EXPECT_EQ(detect_image_prompt(source_of(shapes_of(kDecoupled), {{kImagePromptMetadata, kDecoupled.metadata()}})), kDecoupled);
  const ImagePromptConfig tokens{.feature_width = 1024, .hidden = 3072, .tokens = 4};
  for (const char* prefix : {"image_proj.", "image_proj_model.", ""})
    EXPECT_EQ(detect_image_prompt(source_of(shapes_of(tokens, prefix))), tokens) << prefix;
}

TEST(ImagePrompt, TheWidthOfTheVectorSaysWhichOneItIs) {
  const ImagePromptConfig projected{.feature_width = 768, .hidden = 3072, .tokens = 4, .feature = ImageFeature::Projected};
  EXPECT_EQ(detect_image_prompt(source_of(shapes_of(projected))), projected);
  EXPECT_THAT(failure_of(source_of(shapes_of(kDecoupled))), HasSubstr("64 values and does not say of which encoder"));
}

TEST(ImagePrompt, DamagedFilesAreRefusedByName) {
  const std::map<std::string, std::string> about{{kImagePromptMetadata, kDecoupled.metadata()}};
  const auto failure = [&](const std::function<void(Shapes&)>& damage) {
    Shapes shapes = shapes_of(kDecoupled);
    damage(shapes);
    return failure_of(source_of(shapes, about));
  };
  EXPECT_THAT(failure([](Shapes& s) { s.erase("image_proj.norm.bias"); }), HasSubstr("image_proj.norm.bias [256] is missing"));
  EXPECT_THAT(failure([](Shapes& s) { s["image_proj.proj.bias"] = {7}; }), HasSubstr("image_proj.proj.bias is [7]"));
  EXPECT_THAT(failure([](Shapes& s) { s["stranger"] = {7}; }), HasSubstr("stranger is not known"));
  EXPECT_THAT(failure([](Shapes& s) { s["image_proj.norm.weight"] = {0}; }), HasSubstr("image_proj.norm.weight has the shape"));
  EXPECT_THAT(failure([](Shapes& s) { s["image_proj.proj.weight"] = {1024, 0}; }), HasSubstr("image_proj.proj.weight has"));
  EXPECT_THAT(failure([](Shapes& s) { s["image_proj.proj.weight"] = {1000, 64}; }), HasSubstr("[1000, 64]"));
  EXPECT_THAT(failure([](Shapes& s) { s.erase("double_blocks.1.ip_adapter.k_proj.weight"); }),
              HasSubstr("double_blocks.1.ip_adapter.v_proj.weight is not known"));
  EXPECT_THAT(failure([](Shapes& s) { s.erase("image_proj.norm.weight"); }), HasSubstr("not an image-prompt adapter"));
}

TEST(ImagePrompt, MetadataThatContradictsIsRefused) {
  const auto failure = [](const std::string& about) {
    return failure_of(source_of(shapes_of(kDecoupled), {{kImagePromptMetadata, about}}));
  };
  EXPECT_THAT(failure("[]"), HasSubstr("not an object"));
  EXPECT_THAT(failure("{"), HasSubstr(kImagePromptMetadata));
  EXPECT_THAT(failure(R"({"feature": "pooled", "form": "tokens"})"), HasSubstr("its tensors are those of decoupled"));
  EXPECT_THAT(failure(R"({"feature": 3})"), HasSubstr("not a text"));
  EXPECT_THAT(failure(R"({"feature": "patches"})"), HasSubstr("pooled and projected are supported"));
}

TEST(ImagePrompt, FilesForFlux1AreNamed) {
  const WeightSource xlabs = source_of({{"ip_adapter_proj_model.proj.weight", {16384, 768}},
                                        {"double_blocks.0.processor.ip_adapter_double_stream_k_proj.weight", {3072, 4096}}});
  EXPECT_EQ(flux1_image_prompt(xlabs), "an IP-Adapter for FLUX.1");
  EXPECT_THAT(failure_of(xlabs), HasSubstr("does not fit FLUX.2"));
  const WeightSource redux = source_of({{"redux_up.weight", {12288, 1152}},
                                        {"redux_up.bias", {12288}},
                                        {"redux_down.weight", {4096, 12288}},
                                        {"redux_down.bias", {4096}}});
  EXPECT_THAT(failure_of(redux), HasSubstr("FLUX.1 Redux"));
  EXPECT_EQ(flux1_image_prompt(source_of(shapes_of(kDecoupled))), "");
}

TEST(ImagePrompt, AnotherModelIsRefused) {
  Flux2Config model;
  model.hidden = 256;
  model.double_blocks = 3;
  EXPECT_NO_THROW(check_image_prompt(kDecoupled, model));
  model.double_blocks = 5;
  EXPECT_THROW(check_image_prompt(kDecoupled, model), Error);
  ImagePromptConfig tokens = kDecoupled;
  tokens.form = ImagePromptForm::Tokens;
  EXPECT_NO_THROW(check_image_prompt(tokens, model));
  model.hidden = 3072;
  EXPECT_THROW(check_image_prompt(tokens, model), Error);
}

}  // namespace
}  // namespace flux2
