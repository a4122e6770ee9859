#include "weights/encode_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tensor/blocks.h"
#include "tests/support/paths.h"
#include "weights/block_search.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

std::shared_ptr<const WeightSource> golden() { return open_weights(test::golden_folder() / "gguf-blocks.gguf"); }

std::vector<float> round_trip(DType dtype, const float* x, int64_t count) {
  std::vector<std::byte> blocks(static_cast<size_t>(bytes_for(dtype, count)));
  std::vector<float> back(static_cast<size_t>(count));
  encode_blocks(dtype, x, count, blocks.data());
  decode_blocks(dtype, blocks.data(), count, back.data());
  return back;
}

double squared_error(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

TEST(EncodeBlocks, SimpleTypesMatchTheReferencePackage) {
  const auto source = golden();
  for (DType dtype : {DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0})
    for (const char* name : {"normal", "weights"}) {
      const Tensor x = source->open(std::string("input.") + name);
      const Tensor want = source->open(std::string("package.") + name_of(dtype) + "." + name);
      std::vector<std::byte> got(static_cast<size_t>(want.bytes()));
      encode_blocks(dtype, x.data<float>(), x.numel(), got.data());
      EXPECT_EQ(std::memcmp(got.data(), want.raw(), got.size()), 0) << name_of(dtype) << " " << name;
    }
}

// Every scale code of every group for each of many half floats: nothing the format can say is better by more than the grid
// of half floats misses.
double best_symmetric(const SymmetricType& type, const float* x, float around) {
  const auto level = [&](float v) {
    return type.has_table() ? static_cast<float>(kNonlinearCodes[static_cast<size_t>(nearest_nonlinear(v))])
                            : std::clamp(std::nearbyint(v), static_cast<float>(type.lowest), static_cast<float>(type.highest));
  };
  double best = INFINITY;
  for (int step = -24; step <= 24; ++step) {
    const float d = to_float(to_f16(around * (1.0f + 0.01f * static_cast<float>(step))));
    double total = 0;
    for (int g = 0; g < 256 / type.group; ++g) {
      double least = INFINITY;
      for (int s = type.first; s <= type.last; ++s) {
        const float scale = d * static_cast<float>(s), inverse = scale != 0 ? 1 / scale : 0;
        float error = 0;
        for (int i = g * type.group; i < (g + 1) * type.group; ++i) {
          const float e = scale * level(x[i] * inverse) - x[i];
          error += e * e;
        }
        least = std::min<double>(least, error);
      }
      total += least;
    }
    best = std::min(best, total);
  }
  return best;
}

double best_affine(const AffineType& type, const float* x, float d0, float dmin0, int steps) {
  double best = INFINITY;
  for (int i = -steps; i <= steps; ++i)
    for (int j = -steps; j <= steps; ++j) {
      const float d = to_float(to_f16(d0 * (1 + 0.12f * static_cast<float>(i) / static_cast<float>(steps))));
      const float dmin = to_float(to_f16(dmin0 * (1 + 0.12f * static_cast<float>(j) / static_cast<float>(steps))));
      double total = 0;
      for (int g = 0; g < 256 / type.group; ++g) {
        float least = INFINITY;
        for (int s = 0; s <= type.codes; ++s)
          for (int m = 0; m <= type.codes; ++m) {
            const float scale = d * static_cast<float>(s), low = dmin * static_cast<float>(m),
                        inverse = scale > 0 ? 1 / scale : 0;
            float error = 0;
            for (int k = g * type.group; k < (g + 1) * type.group; ++k) {
              const float q =
                  std::min(std::max((x[k] + low) * inverse + 0x1.8p23f - 0x1.8p23f, 0.0f), static_cast<float>(type.levels));
              const float e = scale * q - low - x[k];
              error += e * e;
            }
            least = std::min(least, error);
          }
        total += least;
      }
      best = std::min(best, total);
    }
  return best;
}

float half_at(const std::vector<std::byte>& block, size_t at) {
  f16 h;
  std::memcpy(&h, block.data() + at, 2);
  return to_float(h);
}

TEST(EncodeBlocks, SearchesAreCloseToTheOptimum) {
  struct Case {
    DType dtype;
    std::function<double(const float*, const std::vector<std::byte>&)> best;
    int blocks;
  };
  const std::vector<Case> cases = {
      {DType::Q2_K, [](const float* x, const auto& b) { return best_affine(kQ2K, x, half_at(b, 80), half_at(b, 82), 10); }, 4},
      {DType::Q3_K, [](const float* x, const auto& b) { return best_symmetric(kQ3K, x, half_at(b, 108)); }, 4},
      {DType::Q4_K, [](const float* x, const auto& b) { return best_affine(kQ4K, x, half_at(b, 0), half_at(b, 2), 1); }, 3},
      {DType::Q5_K, [](const float* x, const auto& b) { return best_affine(kQ5K, x, half_at(b, 0), half_at(b, 2), 1); }, 3},
      {DType::Q6_K, [](const float* x, const auto& b) { return best_symmetric(kQ6K, x, half_at(b, 208)); }, 4},
      {DType::IQ4_XS, [](const float* x, const auto& b) { return best_symmetric(kIQ4XS, x, half_at(b, 0)); }, 2},
  };
  const auto source = golden();
  for (const Case& c : cases)
    for (const char* name : {"normal", "weights"}) {
      const Tensor x = source->open(std::string("input.") + name);
      double ours = 0, best = 0;
      for (int i = 0; i < c.blocks; ++i) {
        const float* block = x.data<float>() + 256 * 3 * i;
        std::vector<std::byte> stored(static_cast<size_t>(info(c.dtype).block_bytes));
        encode_blocks(c.dtype, block, 256, stored.data());
        const auto back = round_trip(c.dtype, block, 256);
        ours += squared_error(back.data(), block, 256);
        best += c.best(block, stored);
      }
      EXPECT_LE(std::sqrt(ours), 1.05 * std::sqrt(best)) << name_of(c.dtype) << " " << name;
      RecordProperty(std::string(name_of(c.dtype)) + "." + name, std::to_string(std::sqrt(ours / best)));
    }
}

// More bits, less error; each about as large as its step says.
TEST(EncodeBlocks, ErrorsFollowTheBits) {
  const auto source = golden();
  const Tensor x = source->open("input.weights");
  const double norm =
      std::sqrt(squared_error(x.data<float>(), std::vector<float>(static_cast<size_t>(x.numel())).data(), x.numel()));
  const std::vector<std::pair<DType, double>> limits = {{DType::Q8_0, 0.008},   {DType::Q6_K, 0.02},    {DType::Q5_K, 0.045},
                                                        {DType::Q5_1, 0.05},    {DType::Q5_0, 0.055},   {DType::Q4_K, 0.09},
                                                        {DType::IQ4_XS, 0.085}, {DType::IQ4_NL, 0.085}, {DType::Q4_1, 0.1},
                                                        {DType::Q4_0, 0.12},    {DType::Q3_K, 0.19},    {DType::Q2_K, 0.3}};
  for (const auto& [dtype, limit] : limits) {
    const auto back = round_trip(dtype, x.data<float>(), x.numel());
    const double error = std::sqrt(squared_error(back.data(), x.data<float>(), x.numel())) / norm;
    EXPECT_LT(error, limit) << name_of(dtype);
    EXPECT_GT(error, limit / 3) << name_of(dtype);
  }
}

TEST(EncodeBlocks, ZerosConstantsTinyAndBrokenBlocks) {
  for (DType dtype : {DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL, DType::Q2_K, DType::Q3_K,
                      DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS}) {
    SCOPED_TRACE(name_of(dtype));
    std::vector<float> x(256, 0.0f);
    for (float v : round_trip(dtype, x.data(), 256)) EXPECT_EQ(v, 0.0f);
    for (float constant : {0.75f, -0.75f}) {
      std::fill(x.begin(), x.end(), constant);
      for (float v : round_trip(dtype, x.data(), 256)) EXPECT_NEAR(v, constant, 0.005f);
    }
    std::fill(x.begin(), x.end(), 1e-40f);
    x[3] = 0;
    for (float v : round_trip(dtype, x.data(), 256)) EXPECT_LT(std::abs(v), 1e-6f);
    x[5] = NAN;
    EXPECT_TRUE(std::isnan(round_trip(dtype, x.data(), 256)[0]));
    x[5] = INFINITY;
    EXPECT_TRUE(std::isnan(round_trip(dtype, x.data(), 256)[1]));
  }
}

}  // namespace
}  // namespace flux2
