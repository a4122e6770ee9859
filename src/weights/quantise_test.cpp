#include "weights/quantise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flux2 {
namespace {

std::vector<float> values(int64_t count, float spread = 1.0f) {
  std::vector<float> out(static_cast<size_t>(count));
  uint32_t state = 77;
  for (float& v : out) v = (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f) * spread;
  return out;
}

Tensor matrix(const std::vector<float>& v, int64_t rows) {
  return Tensor::host_copy(v.data(), DType::F32, {rows, static_cast<int64_t>(v.size()) / rows});
}

uint8_t nearest_e4m3(float x) {
  uint8_t best = 0;
  float distance = INFINITY;
  for (int code = 0; code < 256; ++code) {
    const float v = e4m3_to_float(static_cast<uint8_t>(code));
    if (std::isnan(v)) continue;
    const float d = std::abs(v - x);
    if (d > distance || (d == distance && (code & 1)) || std::signbit(v) != std::signbit(x)) continue;  // ties to even
    distance = d;
    best = static_cast<uint8_t>(code);
  }
  return best;
}

TEST(Quantise, NamesRoundTrip) {
  for (const std::string& name : quant_names()) EXPECT_EQ(name_of(quant_named(name)), name);
  EXPECT_THROW(quant_named("int7"), Error);
}

TEST(Quantise, Int8RowsAreWithinHalfAStepOfTheirOwnScale) {
  ThreadPool threads(2);
  auto v = values(5 * 37);
  for (int i = 0; i < 37; ++i) v[static_cast<size_t>(37 + i)] *= 1e-3f, v[static_cast<size_t>(74 + i)] = 0.0f;
  const Tensor q = quantise(matrix(v, 5), Quant::Int8, threads);
  ASSERT_EQ(q.dtype(), DType::I8);
  const auto scales = q.scales().to_floats();
  ASSERT_EQ(scales.size(), 5u);
  EXPECT_EQ(scales[2], 0.0f);
  EXPECT_LT(scales[1], 1e-5f);
  for (size_t i = 0; i < v.size(); ++i) {
    const float scale = scales[i / 37];
    EXPECT_NEAR(static_cast<float>(q.data<int8_t>()[i]) * scale, v[i], 0.5001f * scale) << i;
  }
}

TEST(Quantise, Fp8IsTheNearestValueOfTheFormat) {
  ThreadPool threads(1);
  auto v = values(512, 448.0f);
  for (size_t i = 0; i < 256; ++i) v[i] *= std::ldexp(1.0f, -static_cast<int>(i % 18));  // subnormal ones too
  v[0] = 448.0f;                                                                         // makes the scale 1
  const Tensor q = quantise(matrix(v, 1), Quant::Fp8, threads);
  ASSERT_EQ(q.scales().to_floats(), std::vector<float>{1.0f});
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(q.data<uint8_t>()[i], nearest_e4m3(v[i])) << i << ": " << v[i];
}

TEST(Quantise, BlocksMatchTheFormat) {
  ThreadPool threads(1);
  std::vector<float> v(64, 0.0f);
  v[0] = -8.0f, v[1] = 3.5f, v[2] = 0.49f, v[17] = 7.0f;  // Q4_0: d = 1, so codes are value + 8, halves upwards
  const Tensor q4 = quantise(matrix(v, 1), Quant::Q4_0, threads);
  const auto* b4 = q4.data<BlockQ4_0>();
  EXPECT_EQ(to_float(b4[0].scale), 1.0f);
  EXPECT_EQ(b4[0].q[0], 0x80);
  EXPECT_EQ(b4[0].q[1], 12 | 15 << 4);
  EXPECT_EQ(b4[0].q[2], 0x88);
  EXPECT_EQ(to_float(b4[1].scale), 0.0f);

  v[0] = 127.0f, v[1] = 0.5f, v[2] = -0.5f, v[3] = -126.4f;  // Q8_0: d = 1, ties away from zero
  const Tensor q8 = quantise(matrix(v, 1), Quant::Q8_0, threads);
  const auto* b8 = q8.data<BlockQ8_0>();
  EXPECT_EQ(to_float(b8[0].scale), 1.0f);
  EXPECT_EQ(b8[0].q[0], 127);
  EXPECT_EQ(b8[0].q[1], 1);
  EXPECT_EQ(b8[0].q[2], -1);
  EXPECT_EQ(b8[0].q[3], -126);
}

TEST(Quantise, SixteenBitWeightsGiveTheSameAsTheirValues) {
  ThreadPool threads(2);
  auto v = values(33 * 64);
  for (float& x : v) x = to_float(to_bf16(x));
  std::vector<bf16> half;
  for (float x : v) half.push_back(to_bf16(x));
  const Tensor stored = Tensor::host_copy(half.data(), DType::BF16, {33, 64});
  for (Quant quant : {Quant::Int8, Quant::Q8_0, Quant::Q4_0, Quant::Fp8}) {
    const Tensor a = quantise(matrix(v, 33), quant, threads), b = quantise(stored, quant, threads);
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << name_of(quant);
  }
}

TEST(Quantise, RejectsUnsuitableShapes) {
  ThreadPool threads(1);
  EXPECT_THROW(quantise(matrix(values(2 * 33), 2), Quant::Q8_0, threads), Error);
  EXPECT_FALSE(can_quantise({4, 33}, Quant::Q4_0));
  EXPECT_TRUE(can_quantise({4, 33}, Quant::Int8));
}

// A weight that is not a number must not turn into a harmless one.
TEST(Quantise, NaNIsNotHidden) {
  ThreadPool threads(1);
  std::vector<float> v(64, 1.0f);
  v[5] = NAN;
  const Tensor q = quantise(matrix(v, 2), Quant::Int8, threads);
  EXPECT_TRUE(std::isnan(q.scales().to_floats()[0]));
  EXPECT_EQ(q.scales().to_floats()[1], 1.0f / 127.0f);
  const Tensor q8 = quantise(matrix(v, 2), Quant::Q8_0, threads), q4 = quantise(matrix(v, 2), Quant::Q4_0, threads);
  EXPECT_TRUE(std::isnan(to_float(q8.data<BlockQ8_0>()[0].scale)));
  EXPECT_TRUE(std::isnan(to_float(q4.data<BlockQ4_0>()[0].scale)));
  EXPECT_FALSE(std::isnan(to_float(q4.data<BlockQ4_0>()[1].scale)));
}

}  // namespace
}  // namespace flux2
