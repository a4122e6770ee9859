#include "weights/eight_bit_scales.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "weights/named_weights.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace flux2 {
namespace {

using namespace testing_files;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::vector<std::pair<std::string, Tensor>>;

const std::string kLayer = "double_blocks.0.img_attn.proj.";

Tensor floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::host_copy(values.data(), DType::F32, shape);
}

// Rows of e4m3: one, then two and what follows it.
Tensor codes(int64_t rows = 4) {
  std::vector<uint8_t> bytes(static_cast<size_t>(2 * rows), 0x38);
  for (size_t i = 0; i < bytes.size() / 2; ++i) bytes[2 * i + 1] = static_cast<uint8_t>(0x40 + i);
  return Tensor::host_copy(bytes.data(), DType::F8_E4M3, {rows, 2});
}

NamedWeights written(const Tensors& tensors) {
  const auto path = scratch_folder() / "x.safetensors";
  save_tensors(path, tensors);
  return {open_weights(path), ModelPart::Transformer};
}

TEST(EightBitScales, TensorFactorIsExpandedToRows) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
    const NamedWeights weights = written({{kLayer + "weight", codes()},
                                          {kLayer + "weight_scale", floats(shape, {0.25f})},
                                          {kLayer + "input_scale", floats({}, {3.0f})}});
    const Tensor w = weights.open(kLayer + "weight");
    EXPECT_EQ(w.dtype(), DType::F8_E4M3);
    EXPECT_EQ(w.to_floats()[1], 2.0f) << "stored values stay as they are";
    EXPECT_THAT(w.scales().to_floats(), ElementsAre(0.25f, 0.25f, 0.25f, 0.25f));
    EXPECT_THAT(weights.unknown(), IsEmpty()) << "both factors belong to the weight";
  }
}

TEST(EightBitScales, FactorsForRowsUnderAnyName) {
  for (const char* name : {"weight_scale", "scale_weight", "weight_scale_inv"})
    for (const Shape& shape : {Shape{4}, Shape{4, 1}}) {
      const NamedWeights weights = written({{kLayer + "weight", codes()}, {kLayer + name, floats(shape, {1, 2, 3, 4})}});
      EXPECT_THAT(weights.open(kLayer + "weight").scales().to_floats(), ElementsAre(1, 2, 3, 4));
      EXPECT_THAT(weights.open(kLayer + "weight", {.axis = 0, .rank = 1, .count = 2}).scales().to_floats(), ElementsAre(3, 4));
      EXPECT_THAT(weights.open(kLayer + "weight", {.axis = 1, .rank = 1, .count = 2}).scales().to_floats(),
                  ElementsAre(1, 2, 3, 4));
    }
}

TEST(EightBitScales, Int8RowsKeepTheirBytes) {
  const std::vector<int8_t> bytes = {1, -2, 3, 4};
  const Tensor q = Tensor::host_copy(bytes.data(), DType::I8, {2, 2});
  const NamedWeights comfy = written({{kLayer + "weight", q}, {kLayer + "weight_scale", floats({2, 1}, {0.5f, 2})}});
  EXPECT_EQ(comfy.open(kLayer + "weight").dtype(), DType::I8);
  EXPECT_THAT(comfy.open(kLayer + "weight").scales().to_floats(), ElementsAre(0.5f, 2));
  const NamedWeights bnb =
      written({{kLayer + "weight", q}, {kLayer + "SCB", floats({2}, {127, 254})}, {kLayer + "weight_format", floats({}, {0})}});
  EXPECT_THAT(bnb.open(kLayer + "weight").scales().to_floats(), ElementsAre(1, 2)) << "the largest value of a row is 127 steps";
  EXPECT_THAT(bnb.unknown(), IsEmpty());
}

TEST(EightBitScales, ValuesOfOtherFloatTypes) {
  const std::vector<uint16_t> half = {0x3e00};  // 1.5 as F16
  const NamedWeights weights =
      written({{kLayer + "weight", codes()}, {kLayer + "weight_scale", Tensor::host_copy(half.data(), DType::F16, {1})}});
  EXPECT_EQ(weights.open(kLayer + "weight").scales().to_floats()[3], 1.5f);
}

TEST(EightBitScales, JoinedPiecesKeepTheirOwnFactors) {
  const std::string attn = "transformer_blocks.0.attn.";
  const NamedWeights weights = written({{attn + "to_q.weight", codes(2)},
                                        {attn + "to_q.weight_scale", floats({}, {0.5f})},
                                        {attn + "to_k.weight", codes(2)},
                                        {attn + "to_v.weight", codes(2)},
                                        {attn + "to_v.weight_scale", floats({2}, {7.0f, 8.0f})}});
  EXPECT_THAT(weights.open("double_blocks.0.img_attn.qkv.weight").scales().to_floats(), ElementsAre(0.5f, 0.5f, 1, 1, 7, 8));
}

TEST(EightBitScales, NoFactorsIfTheFileHasNone) {
  const NamedWeights weights = written({{kLayer + "weight", codes()},
                                        {"img_in.weight", floats({2, 2}, {1, 2, 3, 4})},
                                        {"img_in.weight_scale", floats({}, {2.0f})}});
  EXPECT_FALSE(weights.open(kLayer + "weight").scales().defined());
  EXPECT_FALSE(weights.open("img_in.weight").scales().defined()) << "only FP8 values have factors";
  EXPECT_THAT(weights.unknown(), ElementsAre("img_in.weight_scale"));
}

TEST(EightBitScales, RejectsInvalidFactors) {
  const auto opening = [&](const Tensor& scale) {
    return refusal([&] { written({{kLayer + "weight", codes()}, {kLayer + "weight_scale", scale}}).open(kLayer + "weight"); });
  };
  EXPECT_THAT(opening(floats({3}, {1, 1, 1})), HasSubstr("weight_scale of shape [3] fit no way of scaling"));
  EXPECT_THAT(opening(floats({4}, {1, 1, -1, 1})),
              HasSubstr("holds -1, which is not a valid factor for double_blocks.0.img_attn.proj.weight"));
  EXPECT_THAT(opening(floats({}, {std::numeric_limits<float>::infinity()})), HasSubstr("holds inf"));
  EXPECT_THAT(opening(floats({}, {NAN})), HasSubstr("holds nan"));
  const int32_t one = 1;
  EXPECT_THAT(opening(Tensor::host_copy(&one, DType::I32, {1})), HasSubstr("holds factors as I32"));
}

}  // namespace
}  // namespace flux2
