#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels/parts.h"
#include "tensor/blocks.h"

// What a language model does for its next token, products of one row and attention of one query, against plain loops in double.
namespace flux2 {

namespace {

using Values = std::vector<double>;

constexpr DType kTypes[] = {DType::F32, DType::BF16};

// A weight and the values that it stands for.
struct Weight {
  Tensor stored;
  Values values;
};

class CudaOneRowTest : public CudaTest {
 protected:
  std::vector<uint8_t> random_bytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(generator());
    return bytes;
  }
  float uniform() { return std::uniform_real_distribution<float>(-1.0f, 1.0f)(generator); }

  Weight floats(DType dtype, const Shape& shape) {
    const Tensor w = random(shape, dtype, 1.0 / std::sqrt(static_cast<double>(shape[1])));
    return {w, w.to_doubles()};
  }

  // Random numbers of one byte, with that many scales: 0, 1 or one for each row.
  Weight bytes(DType dtype, const Shape& shape, int64_t scales) {
    std::vector<uint8_t> codes = random_bytes(at(shape.numel()));
    for (uint8_t& c : codes) {
      if (dtype == DType::F8_E4M3 && (c & 0x7f) == 0x7f) c ^= 0x11;  // no NaN
      if (dtype == DType::F8_E5M2) c &= 0xbf;                        // nothing above 2, and no infinity
    }
    std::vector<float> factors(at(scales));
    for (float& f : factors) f = 0.01f * uniform();
    Weight w{Tensor::empty(*stream, dtype, shape), Values(codes.size())};
    stream->upload(w.stored.raw(), codes.data(), codes.size());
    if (scales > 0) w.stored = w.stored.with_scales(Tensor::from(*stream, DType::F32, {scales}, std::span<const float>(factors)));
    for (size_t i = 0; i < codes.size(); ++i) {
      const float v = dtype == DType::I8        ? static_cast<float>(static_cast<int8_t>(codes[i]))
                      : dtype == DType::F8_E4M3 ? e4m3_to_float(codes[i])
                                                : e5m2_to_float(codes[i]);
      const float factor = scales == 0 ? 1.0f : factors[scales == 1 ? 0 : i / at(shape[1])];
      w.values[i] = static_cast<double>(v) * static_cast<double>(factor);
    }
    return w;
  }

  // Random bytes make random blocks; the halves among them, at these places, are set to something finite.
  Weight blocks(DType dtype, const std::vector<int>& halves, const Shape& shape) {
    std::vector<uint8_t> bytes = random_bytes(at(bytes_for(dtype, shape.numel())));
    const auto size = static_cast<size_t>(info(dtype).block_bytes);
    for (size_t block = 0; block < bytes.size(); block += size) {
      for (int place : halves) {
        const f16 v = to_f16(uniform());
        std::memcpy(bytes.data() + block + place, &v, sizeof v);
      }
      if (!halves.empty()) continue;  // else a float, then e4m3 values or scales: no NaN among them
      const float v = uniform();
      std::memcpy(bytes.data() + block, &v, sizeof v);
      for (size_t i = sizeof v; i < size; ++i)
        if ((bytes[block + i] & 0x7f) == 0x7f) bytes[block + i] ^= 0x11;
    }
    std::vector<float> values(at(shape.numel()));
    decode_blocks(dtype, bytes.data(), shape.numel(), values.data());
    const Tensor w = Tensor::empty(*stream, dtype, shape);
    stream->upload(w.raw(), bytes.data(), bytes.size());
    return {w, Values(values.begin(), values.end())};
  }

  // y inside a longer row, of which nothing else may be written.
  void compare(const Tensor& x, const Values& xs, const Weight& w, const Tensor* bias) {
    const int64_t n = w.stored.dim(0), k = w.stored.dim(1);
    const DType dtype = is_float(x.dtype()) ? x.dtype() : DType::BF16;
    const Tensor wide = blank({1, n + 16}, dtype), y = wide.narrowed(1, 8, n);
    const LinearArgs args{x, w.stored, bias, y};
    const Tensor& scales = w.stored.scales();
    const std::string what =
        fmt::format("{} times {} [{}, {}], {} scales, bias {}", name_of(x.dtype()), name_of(w.stored.dtype()), n, k,
                    scales.defined() ? scales.numel() : 0, bias ? name_of(bias->dtype()) : "none");
    ASSERT_TRUE(cuda::one_row_product_fits(args)) << what;
    kernels().linear(args);

    Values wanted = bias ? bias->to_doubles() : Values(at(n), 0.0);
    double largest = 0;  // sum of magnitudes: what the rounding of F32 sums is relative to
    for (size_t row = 0; row < at(n); ++row) {
      double magnitude = std::abs(wanted[row]);
      for (size_t i = 0; i < at(k); ++i) {
        const double term = xs[i] * w.values[row * at(k) + i];
        wanted[row] += term;
        magnitude += std::abs(term);
      }
      largest = std::max(largest, magnitude);
    }
    expect_close(y, wanted, tolerance(dtype), 2e-6 * largest, what);
    const double untouched = dtype == DType::BF16 ? 12352.0 : 12345.0;
    for (int64_t first : {int64_t{0}, n + 8})
      for (double v : wide.narrowed(1, first, 8).to_doubles()) ASSERT_EQ(v, untouched) << what << ": written outside";
  }

  void compare_inputs(const Weight& w) {
    const int64_t n = w.stored.dim(0), k = w.stored.dim(1);
    for (DType t : kTypes) {
      const Tensor x = random({1, k}, t);
      compare(x, x.to_doubles(), w, nullptr);
      for (DType of_bias : {DType::F32, DType::BF16, DType::F16}) {
        const Tensor bias = random({n}, of_bias);
        compare(x, x.to_doubles(), w, &bias);
      }
    }
  }
};

TEST_F(CudaOneRowTest, FloatWeights) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const Shape& shape : {Shape{1, 8}, {3, 1032}, {1000, 520}, {4095, 64}, {4097, 1024}, {5, 5128}, {4100, 16}})
      compare_inputs(floats(dtype, shape));
}

TEST_F(CudaOneRowTest, WeightsOfOneByte) {
  for (DType dtype : {DType::I8, DType::F8_E4M3, DType::F8_E5M2})
    for (const Shape& shape : {Shape{1, 16}, {3, 2064}, {1000, 528}, {4097, 512}, {5, 8208}})
      for (int64_t scales : {int64_t{0}, int64_t{1}, shape[0]}) compare_inputs(bytes(dtype, shape, scales));
}

TEST_F(CudaOneRowTest, InputsOfOneByte) {
  for (DType dtype : {DType::I8, DType::F8_E4M3}) {
    if (!stream->device().multiplies(dtype)) continue;
    for (const Shape& shape : {Shape{1, 16}, {3, 2064}, {1000, 528}, {4097, 512}, {5, 8208}})
      for (int64_t scales : {int64_t{0}, int64_t{1}, shape[0]}) {
        const Weight w = bytes(dtype, shape, scales);
        const Tensor x = Tensor::empty(*stream, dtype, {1, shape[1]}).with_scales(blank({1}, DType::F32));
        kernels().quantise({random({1, shape[1]}, DType::BF16), x});
        Values xs = x.with_scales({}).to_doubles();
        const double factor = x.scales().to_doubles()[0];
        for (double& v : xs) v *= factor;
        compare(x, xs, w, nullptr);
        const Tensor bias = random({shape[0]}, DType::BF16);
        compare(x, xs, w, &bias);
      }
  }
}

TEST_F(CudaOneRowTest, WeightsInBlocks) {
  const std::pair<DType, std::vector<int>> types[] = {
      {DType::Q8_0, {0}},   {DType::Q4_0, {0}},      {DType::Q4_1, {0, 2}}, {DType::Q5_0, {0}},    {DType::Q5_1, {0, 2}},
      {DType::IQ4_NL, {0}}, {DType::Q2_K, {80, 82}}, {DType::Q3_K, {108}},  {DType::Q4_K, {0, 2}}, {DType::Q5_K, {0, 2}},
      {DType::Q6_K, {208}}, {DType::IQ4_XS, {0}},    {DType::F8_128, {}},   {DType::NVFP4, {}}};
  for (const auto& [dtype, halves] : types) {
    for (const Shape& shape : {Shape{1, 256}, {3, 2304}, {1000, 512}, {4097, 256}, {5, 4352}})
      compare_inputs(blocks(dtype, halves, shape));
    if (info(dtype).block_elements == 32) compare_inputs(blocks(dtype, halves, {7, 2080}));
    // Rows from the middle of a matrix.
    Weight w = blocks(dtype, halves, {9, 512});
    w = {w.stored.narrowed(0, 3, 5), Values(w.values.begin() + 3 * 512, w.values.begin() + 8 * 512)};
    compare_inputs(w);
  }
}

TEST_F(CudaOneRowTest, SwigluOfStoredWeights) {
  if (!kernels().linear_swiglu) GTEST_SKIP() << "this GPU has no such product";
  const int64_t hidden = 300, inner = 512;
  const Weight w = blocks(DType::Q8_0, {0}, {2 * hidden, inner});
  for (DType t : kTypes) {
    const Tensor x = random({1, inner}, t, 0.01), u = blank({1, 2 * hidden}, t), y = blank({1, hidden}, t),
                 same = blank({1, hidden}, t);
    kernels().linear_swiglu({x, w.stored, y});
    kernels().linear({x, w.stored, nullptr, u});
    kernels().swiglu({u.narrowed(1, 0, hidden), u.narrowed(1, hidden, hidden), same});
    EXPECT_EQ(y.to_floats(), same.to_floats()) << name_of(t);
  }
}

TEST_F(CudaOneRowTest, CapturedProductsGiveTheSameBytes) {
  const Tensor x = random({1, 2048}, DType::BF16), w = random({5000, 2048}, DType::BF16, 0.05), y = blank({1, 5000}, DType::BF16);
  const auto graph = stream->capture([&] { kernels().linear({x, w, nullptr, y}); });
  const auto first = y.to_floats();
  y.fill(0.0);
  graph->replay();
  EXPECT_EQ(y.to_floats(), first);
}

// --- Attention ---

class CudaOneQueryTest : public CudaTest {
 protected:
  // q, y [B, 1, H, D]; k, v [B, T, G, D]. With a mask, the last of several items of the batch sees nothing.
  void compare(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y, bool masked, bool causal) {
    const int64_t batch = q.dim(0), heads = q.dim(2), keys = k.dim(1), key_heads = k.dim(2), width = q.dim(3);
    const std::string what = fmt::format("{} batch {} keys {} heads {}/{} width {}{}{}", name_of(q.dtype()), batch, keys, heads,
                                         key_heads, width, causal ? " causal" : "", masked ? " masked" : "");
    std::vector<int32_t> visible(at(batch * keys), 1);
    if (masked) {
      for (int32_t& m : visible) m = generator() % 4 != 0 ? 1 : 0;
      visible[0] = 1;
      if (batch > 1) std::fill_n(visible.end() - keys, keys, 0);
    }
    const Tensor mask = ints({batch, keys}, visible), log_sum = blank({batch, heads, 1}, DType::F32);
    const float scale = 1.0f / std::sqrt(static_cast<float>(width));
    const AttentionArgs args{q, k, v, y, masked ? &mask : nullptr, &log_sum, scale, causal};
    ASSERT_TRUE(cuda::one_query_attention_fits(args)) << what;
    kernels().attention(args);

    const Values qs = q.to_doubles(), ks = k.to_doubles(), vs = v.to_doubles();
    Values wanted(qs.size(), 0.0), sums, p(at(keys));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        const auto row = [&](int64_t t) { return at(((b * keys + t) * key_heads + h / (heads / key_heads)) * width); };
        const size_t own = at((b * heads + h) * width);
        double total = 0, top = -std::numeric_limits<double>::infinity();
        for (int64_t t = 0; t < keys; ++t) {
          double s = 0;
          for (size_t d = 0; d < at(width); ++d) s += qs[own + d] * ks[row(t) + d];
          p[at(t)] = visible[at(b * keys + t)] != 0 ? s * static_cast<double>(scale) : -std::numeric_limits<double>::infinity();
          top = std::max(top, p[at(t)]);
        }
        for (double& s : p) s = std::isinf(s) ? 0.0 : std::exp(s - top), total += s;
        sums.push_back(total > 0 ? top + std::log(total) : top);
        for (int64_t t = 0; t < keys && total > 0; ++t)
          for (size_t d = 0; d < at(width); ++d) wanted[own + d] += p[at(t)] / total * vs[row(t) + d];
      }
    const bool half = q.dtype() == DType::BF16;
    expect_close(y, wanted, half ? 0x1p-8 : 1e-5, half ? 1e-4 : 1e-5, what);
    const Values actual = log_sum.to_doubles();
    for (size_t i = 0; i < sums.size(); ++i) {
      if (std::isinf(sums[i])) EXPECT_EQ(actual[i], sums[i]) << what << " log_sum " << i;
      else EXPECT_NEAR(actual[i], sums[i], 2e-5) << what << " log_sum " << i;
    }
  }
};

TEST_F(CudaOneQueryTest, AgreesWithTheEquation) {
  struct Heads {
    int64_t batch, heads, key_heads;
  };
  for (DType t : kTypes)
    for (int64_t width : {8, 40, 64, 72, 128, 136, 256})
      for (int64_t keys : {1, 7, 32, 257, 1000})
        for (const auto& [batch, heads, key_heads] : {Heads{1, 1, 1}, {2, 6, 2}, {3, 4, 1}})
          for (bool masked : {false, true}) {
            const Tensor q = random({batch, 1, heads, width}, t, 1.5), k = random({batch, keys, key_heads, width}, t);
            compare(q, k, random(k.shape(), t), blank(q.shape(), t), masked, (keys & 1) != 0);
          }
}

TEST_F(CudaOneQueryTest, AsManyKeysAsFit) {
  for (DType t : kTypes) {
    const Tensor q = random({1, 1, 4, 128}, t, 1.5), k = random({1, 8192, 2, 128}, t);
    compare(q, k, random(k.shape(), t), blank(q.shape(), t), false, true);
  }
}

TEST_F(CudaOneQueryTest, ReadsTheFilledPartOfACache) {
  const std::vector<int> heads_first{0, 2, 1, 3};
  for (DType t : kTypes)
    for (int64_t width : {64, 128})
      for (int64_t keys : {1, 7, 257, 1000})
        for (bool masked : {false, true}) {
          const int64_t batch = 2, heads = 8, key_heads = 2, capacity = 1100;
          const Tensor rows = random({batch, 1, (heads + 3) * width}, t), out = blank({batch, 1, (heads + 2) * width}, t);
          const Tensor q = rows.narrowed(2, width, heads * width).reshaped({batch, 1, heads, width});
          const Tensor y = out.narrowed(2, width, heads * width).reshaped({batch, 1, heads, width});
          const Tensor cache = random({batch, capacity, key_heads, width}, t), other = random(cache.shape(), t);
          compare(q, cache.narrowed(1, 0, keys), other.narrowed(1, 100, keys), y, masked, true);
          const double untouched = t == DType::BF16 ? 12352.0 : 12345.0;
          for (int64_t first : {int64_t{0}, (heads + 1) * width})
            for (double v : out.narrowed(2, first, width).to_doubles()) ASSERT_EQ(v, untouched);

          // Tokens of a head side by side.
          const Tensor turned = random({batch, key_heads, capacity, width}, t), second = random(turned.shape(), t);
          compare(q, turned.permuted(heads_first).narrowed(1, 3, keys), second.permuted(heads_first).narrowed(1, 0, keys), y,
                  masked, false);
        }
}

}  // namespace

}  // namespace flux2
