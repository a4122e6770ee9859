#include "base/rng.h"

#include <gtest/gtest.h>

#include <vector>

namespace flux2 {
namespace {

TEST(Rng, PhiloxWords) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox(42, 0, 0), (std::array<uint32_t, 4>{0x9CEAF053, 0x77F5493B, 0x12BF50AD, 0x5742B3D7}));
}

TEST(Rng, CpuNormalMatchesPyTorch) {
  std::vector<float> v(16);
  torch_cpu_normal(42, v);
  EXPECT_EQ(v[0], 1.9269153f);
  EXPECT_EQ(v[1], 1.4872841f);
  EXPECT_EQ(v[6], -0.043067478f);
  EXPECT_EQ(v[15], 0.7624454f);
  torch_cpu_normal(0, v);
  EXPECT_EQ(v[0], -1.1258398f);
  EXPECT_EQ(v[15], -0.24727815f);
}

TEST(Rng, FewValuesTakeTheScalarPath) {
  std::vector<float> v(3);
  torch_cpu_normal(0, v);
  EXPECT_FLOAT_EQ(v[0], 1.5409961f);
  EXPECT_FLOAT_EQ(v[1], -0.2934289f);
  EXPECT_FLOAT_EQ(v[2], -2.1787894f);
}

TEST(Rng, SeedsBeyond32BitsUseTheLowWord) {
  std::vector<float> a(32), b(32);
  torch_cpu_normal((1ull << 40) + 7, a);
  torch_cpu_normal(7, b);
  EXPECT_EQ(a, b);
}

TEST(Rng, Bf16DrawIsAnotherSequence) {
  std::vector<float> v(16);
  torch_cpu_normal_bf16(42, v);
  EXPECT_EQ(v[0], -0.80859375f);
  EXPECT_EQ(v[5], 0.20410156f);
  EXPECT_EQ(v[15], 0.118652344f);
}

TEST(Rng, CudaNormalDependsOnTheGpuOnlyForLargeTensors) {
  std::vector<float> small(1000), other(1000);
  torch_cuda_normal(42, {132, 2048}, small);
  torch_cuda_normal(42, {128, 1536}, other);
  EXPECT_EQ(small, other);
  EXPECT_NEAR(small[0], 0.19402f, 2e-5);
  EXPECT_NEAR(small[1], 2.16137f, 2e-5);

  std::vector<float> large(524288);
  torch_cuda_normal(42, {132, 2048}, large);
  EXPECT_NEAR(large[300000], 1.87199f, 2e-5);
  EXPECT_NEAR(large[200000], 1.00288f, 2e-5);
  torch_cuda_normal(42, {128, 1536}, large);
  EXPECT_NEAR(large[300000], 1.72476f, 2e-5);
  EXPECT_NEAR(large[200000], -0.21325f, 2e-5);
}

}  // namespace
}  // namespace flux2
