#include <algorithm>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/softmax.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

struct Case {
  int64_t batch, queries, keys, heads, groups, width;
  bool causal, masked;

  std::string text() const {
    return fmt::format("B {} S {} T {} H {} G {} D {}{}{}", batch, queries, keys, heads, groups, width, causal ? " causal" : "",
                       masked ? " masked" : "");
  }
};

const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, 4, false, false},      {2, 17, 17, 3, 3, 16, false, false},
    {1, 70, 70, 4, 2, 32, true, false},                                         // several blocks of queries, grouped heads
    {2, 9, 33, 2, 1, 24, false, true},     {2, 40, 40, 4, 1, 20, true, true},   // some rows see no key at all
    {1, 5, 901, 2, 2, 64, false, false},                                        // several blocks of keys
    {1, 450, 450, 1, 1, 128, true, false}, {1, 830, 830, 1, 1, 8, true, true},  // and a causal mask across them
    {1, 13, 400, 1, 1, 512, false, false},                                      // the autoencoder's single wide head
    {1, 1, 77, 4, 2, 32, true, false},     {2, 1, 130, 8, 2, 64, true, false},  // one that follows others
    {2, 40, 500, 4, 2, 32, true, true},                                         // tokens that follow others
};

struct Expected {
  std::vector<double> y, log_sum;
};

Expected plain_attention(const Case& c, const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                         const std::vector<int32_t>& mask, double scale) {
  const auto at = [&](const std::vector<float>& t, int64_t rows, int64_t heads, int64_t b, int64_t s, int64_t h) {
    return t.data() + ((b * rows + s) * heads + h) * c.width;
  };
  Expected e;
  e.y.assign(q.size(), 0.0);
  e.log_sum.assign(static_cast<size_t>(c.batch * c.heads * c.queries), -INFINITY);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> scores;
        std::vector<int64_t> seen;
        for (int64_t j = 0; j < c.keys; ++j) {
          if ((c.causal && j > i + c.keys - c.queries) || (c.masked && mask[static_cast<size_t>(b * c.keys + j)] == 0)) continue;
          double dot = 0;
          for (int64_t d = 0; d < c.width; ++d)
            dot += static_cast<double>(at(q, c.queries, c.heads, b, i, h)[d]) *
                   at(k, c.keys, c.groups, b, j, h / (c.heads / c.groups))[d];
          scores.push_back(dot * scale);
          seen.push_back(j);
        }
        if (scores.empty()) continue;
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double s : scores) sum += std::exp(s - max);
        e.log_sum[static_cast<size_t>((b * c.heads + h) * c.queries + i)] = max + std::log(sum);
        for (size_t n = 0; n < seen.size(); ++n)
          for (int64_t d = 0; d < c.width; ++d)
            e.y[static_cast<size_t>(((b * c.queries + i) * c.heads + h) * c.width + d)] +=
                std::exp(scores[n] - max) / sum * at(v, c.keys, c.groups, b, seen[n], h / (c.heads / c.groups))[d];
      }
  return e;
}

void expect_attention(const TestCpu& cpu, const Case& c, DType dtype) {
  // Heads lie between others in one wide tensor, as after a fused q, k, v product.
  const auto view = [&](int64_t rows, int64_t heads, uint32_t seed) {
    return noise(*cpu.stream, dtype, {c.batch, rows, heads + 2, c.width}, seed).narrowed(2, 1, heads);
  };
  const Tensor q = view(c.queries, c.heads, 1), k = view(c.keys, c.groups, 2), v = view(c.keys, c.groups, 3);
  std::vector<int32_t> mask(static_cast<size_t>(c.batch * c.keys), 1);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = (i * 7) % 5 < 3 && i % static_cast<size_t>(c.keys) > 2;
  const Tensor key_mask = Tensor::from<int32_t>(*cpu.stream, DType::I32, {c.batch, c.keys}, mask);
  const Tensor y = Tensor::like(q, {c.batch, c.queries, c.heads, c.width});
  const Tensor log_sum = Tensor::empty(*cpu.stream, DType::F32, {c.batch, c.heads, c.queries});
  const float scale = 2.5f / std::sqrt(static_cast<float>(c.width));
  cpu.device->kernels().attention({q, k, v, y, c.masked ? &key_mask : nullptr, &log_sum, scale, c.causal});

  auto qs = q.to_floats(), ks = k.to_floats(), vs = v.to_floats();
  if (cpu.rounds()) {  // queries after they are scaled
    const float factor = scale * 1.44269504f;
    for (float& q_value : qs) q_value = to_float(to_bf16(q_value * factor)) / factor;
    ks = rounded_to_bf16(ks), vs = rounded_to_bf16(vs);
  }
  const Expected want = plain_attention(c, qs, ks, vs, mask, scale);
  // Values lie within ±1. What remains beside f32 sums is the rounding of weights to bf16 and that of the result.
  const double tolerance = (cpu.rounds() ? 0x1p-9 : 4e-6) + (dtype == DType::BF16 ? 0x1p-9 : 0);
  Agreement agreement;
  const auto got = y.to_floats(), got_log_sum = log_sum.to_floats();
  for (size_t i = 0; i < got.size(); ++i) agreement.see(got[i], want.y[i], tolerance, fmt::format("y[{}]", i));
  for (size_t i = 0; i < got_log_sum.size(); ++i)
    if (std::isinf(want.log_sum[i])) EXPECT_EQ(got_log_sum[i], -INFINITY) << i;
    else agreement.see(got_log_sum[i], want.log_sum[i], cpu.rounds() ? 5e-5 : 1e-5, fmt::format("log_sum[{}]", i));
  agreement.expect(c.text());
}

TEST(GemmAttention, AgreesWithAPlainLoop) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu cpu(profile);
    for (const Case& c : kCases)
      for (DType dtype : {DType::F32, DType::BF16}) expect_attention(cpu, c, dtype);
  }
}

// What a language model needs for its next token: one query in f32 and nothing for a gradient.
TEST(GemmAttention, OneQuery) {
  const TestCpu cpu(Profile::Fast);
  for (const Case& c :
       {Case{1, 1, 1, 2, 1, 16, true, false}, {1, 1, 230, 8, 2, 128, true, false}, {2, 1, 65, 4, 4, 48, false, false}}) {
    const Tensor q = noise(*cpu.stream, DType::F32, {c.batch, 1, c.heads, c.width}, 1);
    // The first keys of a longer memory.
    const auto memory = [&](uint32_t seed) {
      return noise(*cpu.stream, DType::F32, {c.batch, c.keys + 9, c.groups, c.width}, seed).narrowed(1, 0, c.keys);
    };
    const Tensor k = memory(2), v = memory(3), y = Tensor::like(q);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    cpu.device->kernels().attention({q, k, v, y, nullptr, nullptr, scale, c.causal});
    const Expected want = plain_attention(c, q.to_floats(), k.to_floats(), v.to_floats(), {}, scale);
    Agreement agreement;
    const auto got = y.to_floats();
    for (size_t i = 0; i < got.size(); ++i) agreement.see(got[i], want.y[i], 4e-6, fmt::format("y[{}]", i));
    agreement.expect(c.text());
  }
}

TEST(GemmAttention, ExactRowsDependNeitherOnThreadsNorOnOtherRows) {
  const TestCpu two(Profile::Exact, 2), one(Profile::Exact, 1);
  const Tensor q = noise(*two.stream, DType::F32, {1, 100, 2, 32}, 1), k = noise(*two.stream, DType::F32, {1, 500, 2, 32}, 2);
  const Tensor y = Tensor::like(q), row = Tensor::empty(*one.stream, DType::F32, {1, 1, 2, 32});
  two.device->kernels().attention({q, k, k, y, nullptr, nullptr, 1.0f, false});
  for (int64_t i : {0, 7, 63, 64, 99}) {
    one.device->kernels().attention({q.narrowed(1, i, 1), k, k, row, nullptr, nullptr, 1.0f, false});
    EXPECT_EQ(row.to_floats(), y.narrowed(1, i, 1).to_floats()) << i;
  }
}

// The same scores in pieces of each length, apart from each other as in tiles.
TEST(GemmSoftmax, PowersAreAccurateForF32AndBf16) {
  std::vector<float> scores;
  for (float x = -125.9f; x < 0; x += 0.01f) scores.push_back(x);
  scores.resize(scores.size() / 96 * 96);
  scores[0] = 0;
  for (int64_t length : {8, 12, 16, 32}) {
    const auto count = static_cast<int64_t>(scores.size()), pieces = count / length, apart = length + 5;
    std::vector<float> tiles(static_cast<size_t>(pieces * apart), 1e30f), exact(scores.size());
    for (int64_t i = 0; i < count; ++i)
      tiles[static_cast<size_t>(i / length * apart + i % length)] = scores[static_cast<size_t>(i)];
    std::vector<bf16> rounded(scores.size());
    SoftmaxState state, again;
    softmax_step(state, {tiles.data(), length, apart}, pieces, exact.data());
    softmax_step(again, {tiles.data(), length, apart}, pieces, rounded.data());
    EXPECT_EQ(state.max, 0.0f);
    EXPECT_NEAR(state.sum, again.sum, 4e-5 * state.sum);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double want = std::exp2(static_cast<double>(scores[i]));
      EXPECT_NEAR(exact[i], want, 3e-7 * want) << scores[i];
      EXPECT_NEAR(to_float(rounded[i]), want, (0x1p-8 + 5e-5) * want) << scores[i];
    }
  }
}

TEST(GemmSoftmax, MaskedScoresHaveNoWeightAndNaNIsNotHidden) {
  std::vector<float> scores(16, -INFINITY), weights(16, 1.0f);
  const Pieces all = {scores.data(), 16, 16};
  SoftmaxState state;
  softmax_step(state, all, 1, weights.data());
  EXPECT_EQ(weights, std::vector<float>(16, 0.0f));
  EXPECT_EQ(state.sum, 0.0f);
  scores[3] = 2.0f;
  softmax_step(state, all, 1, weights.data());
  EXPECT_EQ(weights[3], 1.0f);
  EXPECT_EQ(weights[4], 0.0f);
  scores[5] = NAN;
  softmax_step(state, all, 1, weights.data());
  EXPECT_TRUE(std::isnan(state.sum));
}

}  // namespace
}  // namespace flux2::gemm
