#include "model/upscaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/random_upscaler.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Tensors = std::vector<std::pair<std::string, Tensor>>;

fs::path scratch() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = fs::path(::testing::TempDir()) / "flux2_upscaler" / test->name();
  fs::create_directories(folder);
  return folder;
}

std::shared_ptr<const WeightSource> saved(const Tensors& tensors) {
  save_tensors(scratch() / "file.safetensors", tensors);
  return open_weights(scratch() / "file.safetensors");
}

std::string refusal(const Tensors& tensors) {
  try {
    detect_upscaler(*saved(tensors));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Upscaler, SizesComeFromShapes) {
  for (int scale : {1, 2, 4})
    for (bool older : {false, true}) {
      const UpscalerConfig config{.scale = scale, .blocks = 2, .width = 8, .growth = 4, .older_names = older};
      const auto weights = saved(test::random_upscaler_tensors(config));
      EXPECT_EQ(detect_upscaler(*weights), config);
      ASSERT_NE(upscaler_sign(*weights), nullptr);
    }
  EXPECT_EQ((UpscalerConfig{.scale = 2}).name(), "RRDBNet x2, 23 blocks of width 64");
}

TEST(Upscaler, ThePublishedOneHasItsNumberOfParameters) {
  int64_t parameters = 0;
  for (const auto& [name, shape] : upscaler_tensors(UpscalerConfig{})) parameters += shape.numel();
  EXPECT_EQ(parameters, 16'697'987);
}

TEST(Upscaler, DamagedFilesNameWhatIsWrong) {
  const UpscalerConfig config{.blocks = 2, .width = 8, .growth = 4};
  Tensors tensors = test::random_upscaler_tensors(config);
  std::erase_if(tensors, [](const auto& t) { return t.first == "body.1.rdb2.conv3.bias"; });
  EXPECT_THAT(refusal(tensors), HasSubstr("body.1.rdb2.conv3.bias [4] is missing"));

  tensors = test::random_upscaler_tensors(config);
  for (auto& [name, tensor] : tensors)
    if (name == "conv_first.weight") tensor = Tensor::host_empty(DType::F32, {8, 5, 3, 3});
  EXPECT_THAT(refusal(tensors), HasSubstr("conv_first.weight has 5 inputs; 3, 12 and 48 are possible"));

  for (auto& [name, tensor] : tensors)
    if (name == "conv_first.weight") tensor = Tensor::host_empty(DType::F32, {8, 3, 1, 1});
  EXPECT_THAT(refusal(tensors), HasSubstr("a 3×3 filter is expected"));

  EXPECT_THAT(refusal({{"a", Tensor::host_empty(DType::F32, {1})}}), HasSubstr("this is not an upscaler"));
}

}  // namespace
}  // namespace flux2
