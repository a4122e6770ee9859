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

// --- Several products with what stands before and after them ---

class CudaRowProductsTest : public CudaOneRowTest {
 protected:
  struct Case {
    Tensor x, norm;  // norm may be undefined
    std::vector<Weight> weights;
    RowResult result = RowResult::Plain;
    Tensor residual;
    DType of_places = DType::BF16;
  };
  static constexpr float kEps = 1e-5f;

  static Values normed(const Tensor& x, const Tensor& norm) {
    Values n = x.to_doubles();
    if (!norm.defined()) return n;
    const Values weights = norm.to_doubles();
    double squares = 0;
    for (double v : n) squares += v * v;
    for (size_t i = 0; i < n.size(); ++i)
      n[i] *= weights[i] / std::sqrt(squares / static_cast<double>(n.size()) + static_cast<double>(kEps));
    return n;
  }

  // Sums, and the largest sum of magnitudes.
  static std::pair<Values, double> sums_of(const Values& n, const Weight& w) {
    Values sums;
    double largest = 0;
    for (size_t row = 0; row < at(w.stored.dim(0)); ++row) {
      double sum = 0, magnitude = 0;
      for (size_t i = 0; i < n.size(); ++i) {
        const double term = n[i] * w.values[row * n.size() + i];
        sum += term;
        magnitude += std::abs(term);
      }
      sums.push_back(sum);
      largest = std::max(largest, magnitude);
    }
    return {sums, largest};
  }

  // Places inside longer rows, of which nothing else may be written.
  void compare(const Case& c) {
    const bool one = c.result != RowResult::Plain;
    std::vector<Tensor> stored, wide, places;
    for (const Weight& w : c.weights) stored.push_back(w.stored);
    for (size_t i = 0; i < (one ? 1 : stored.size()); ++i) {
      const int64_t n = stored[i].dim(0);
      wide.push_back(blank({1, n + 6}, c.of_places));
      places.push_back(wide.back().narrowed(1, 3, n));
    }
    const RowProductsArgs args{c.x,      c.norm.defined() ? &c.norm : nullptr,         kEps,  stored,
                               c.result, c.residual.defined() ? &c.residual : nullptr, places};
    const std::string what =
        fmt::format("{} weights {} [{}, {}], {} scales{}, result {} as {}", stored.size(), name_of(stored[0].dtype()),
                    stored[0].dim(0), stored[0].dim(1), stored[0].scales().defined() ? stored[0].scales().numel() : 0,
                    c.norm.defined() ? ", norm" : "", static_cast<int>(c.result), name_of(c.of_places));
    ASSERT_TRUE(cuda::row_products_fit(args)) << what;
    stream->wait();  // weights must be at rest
    token_kernels().row_products(args);

    const Values n = normed(c.x, c.norm);
    const double untouched = c.of_places == DType::BF16 ? 12352.0 : 12345.0;
    for (size_t i = 0; i < places.size(); ++i) {
      auto [wanted, largest] = sums_of(n, c.weights[i]);
      double absolute = 4e-6 * largest;
      if (c.norm.defined()) absolute += 2e-5 * largest;  // with BF16 weights, n has 16 bits
      if (c.result == RowResult::Added) {
        const Values residual = c.residual.to_doubles();
        for (size_t j = 0; j < wanted.size(); ++j) wanted[j] += residual[j];
      } else if (c.result == RowResult::Swiglu) {
        const auto [up, largest_up] = sums_of(n, c.weights[1]);
        double most = 1;
        for (size_t j = 0; j < wanted.size(); ++j) {
          most = std::max({most, std::abs(wanted[j]), std::abs(up[j])});
          wanted[j] *= up[j] / (1.0 + std::exp(-wanted[j]));
        }
        absolute = 2.5e-5 * most * std::max(largest, largest_up);
      }
      expect_close(places[i], wanted, tolerance(c.of_places), absolute, what);
      for (int64_t first : {int64_t{0}, stored[i].dim(0) + 3})
        for (double v : wide[i].narrowed(1, first, 3).to_doubles()) ASSERT_EQ(v, untouched) << what << ": written outside";
    }
  }

  Tensor some_norm(int64_t k, DType dtype) {
    Tensor n = random({k}, dtype, 0.2);
    Tensor ones = blank({k}, dtype), sum = blank({k}, dtype);
    ones.fill(1.0);
    kernels().binary({Binary::Add, n, ones, sum});
    return sum;
  }

  // Every use of weights that make(shape) gives.
  template <class Make>
  void compare_uses(int64_t k, Make&& make) {
    for (DType of_norm : {DType::BF16, DType::F32})
      for (DType of_places : kTypes)
        compare({.x = random({1, k}, DType::BF16, 3.0),
                 .norm = some_norm(k, of_norm),
                 .weights = {make({40, k}), make({8, k}), make({23, k})},
                 .residual = {},
                 .of_places = of_places});
    for (int64_t rows : {1, 15, 17, 1000}) {
      compare({.x = random({1, k}, DType::BF16), .norm = {}, .weights = {make({rows, k})}, .residual = {}});
      compare({.x = random({1, k}, DType::BF16),
               .norm = {},
               .weights = {make({rows, k})},
               .result = RowResult::Added,
               .residual = random({1, rows}, DType::BF16, 5.0)});
      if (k <= 8192)
        compare({.x = random({1, k}, DType::BF16, 0.1),
                 .norm = some_norm(k, DType::BF16),
                 .weights = {make({rows, k}), make({rows, k})},
                 .result = RowResult::Swiglu,
                 .residual = {}});
    }
    // More tiles than multiprocessors, in both heights.
    compare({.x = random({1, k}, DType::BF16), .norm = {}, .weights = {make({4099, k})}, .residual = {}});
    compare({.x = random({1, k}, DType::BF16), .norm = {}, .weights = {make({2560, k})}, .residual = {}});
  }
};

TEST_F(CudaRowProductsTest, WeightsOfTwoBytes) {
  for (DType dtype : {DType::BF16, DType::F16})
    for (int64_t k : {8, 520, 1032, 2560}) compare_uses(k, [&](const Shape& shape) { return floats(dtype, shape); });
}

TEST_F(CudaRowProductsTest, WeightsOfOneByte) {
  for (DType dtype : {DType::I8, DType::F8_E4M3})
    for (int64_t k : {16, 528, 2064})
      for (int64_t scales : {0, 1, 2})
        compare_uses(k, [&](const Shape& shape) { return bytes(dtype, shape, scales == 2 ? shape[0] : scales); });
}

TEST_F(CudaRowProductsTest, WeightsInBlocks) {
  for (DType dtype : {DType::Q4_0, DType::Q8_0})
    for (int64_t k : {256, 512, 2560}) compare_uses(k, [&](const Shape& shape) { return blocks(dtype, {0}, shape); });
}

TEST_F(CudaRowProductsTest, LongRows) {
  const int64_t k = 32768;
  const auto compare_plain = [&](const Weight& w) {
    compare({.x = random({1, k}, DType::BF16), .norm = {}, .weights = {w}, .residual = {}});
  };
  compare_plain(floats(DType::BF16, {50, k}));
  compare_plain(bytes(DType::F8_E4M3, {50, k}, 50));
  compare_plain(blocks(DType::Q4_0, {0}, {50, k}));
  compare({.x = random({1, 8192}, DType::BF16),
           .norm = some_norm(8192, DType::BF16),
           .weights = {floats(DType::BF16, {50, 8192}), floats(DType::BF16, {50, 8192})},
           .result = RowResult::Swiglu,
           .residual = {}});
}

// x has values far from the others, as the inputs of some layers do; they are rounded to F16 beside 8-bit weights.
TEST_F(CudaRowProductsTest, ValuesOfAnySize) {
  for (double size : {1e-20, 1e-6, 1.0, 1e6, 1e20}) {
    const int64_t k = 1024;
    std::vector<float> values(at(k));
    for (float& v : values) v = static_cast<float>(size) * uniform();
    values[77] = static_cast<float>(3000 * size);
    const Tensor x = Tensor::from(*stream, DType::BF16, {1, k}, std::span<const float>(values));
    for (const Weight& w : {floats(DType::BF16, {40, k}), bytes(DType::I8, {40, k}, 40), blocks(DType::Q4_0, {0}, {40, k})}) {
      compare({.x = x, .norm = {}, .weights = {w}, .residual = {}, .of_places = DType::F32});
      if (size >= 1e-6 && size < 1e10)
        compare({.x = x, .norm = some_norm(k, DType::F32), .weights = {w}, .residual = {}, .of_places = DType::F32});
    }
  }
  const Tensor zeros = blank({1, 512}, DType::BF16);
  zeros.fill(0.0);
  compare({.x = zeros, .norm = some_norm(512, DType::F32), .weights = {bytes(DType::I8, {40, 512}, 1)}, .residual = {}});
}

// What has no kernel of its own is computed by others.
TEST_F(CudaRowProductsTest, OtherInputs) {
  const int64_t k = 512, rows = 24;
  for (DType t : kTypes)
    for (const Weight& w : {floats(DType::F32, {rows, k}), blocks(DType::Q4_K, {0, 2}, {rows, k})}) {
      const Tensor x = random({1, k}, t), norm = some_norm(k, t), residual = random({1, rows}, t), y = blank({1, rows}, t),
                   wide = blank({1, rows}, DType::F32);
      const Tensor two[] = {w.stored, w.stored}, places[] = {y, wide};
      const RowProductsArgs plain{x, &norm, kEps, two, RowResult::Plain, nullptr, places};
      ASSERT_FALSE(cuda::row_products_fit(plain));
      token_kernels().row_products(plain);
      const auto [wanted, largest] = sums_of(normed(x, norm), w);
      const double absolute = (t == DType::BF16 ? 1e-3 : 1e-5) * largest;  // n is rounded
      expect_close(y, wanted, tolerance(t), absolute, "place");
      expect_close(wide, wanted, tolerance(t), absolute, "place in F32");
      token_kernels().row_products({x, nullptr, 0.0f, {two, 1}, RowResult::Added, &residual, {places, 1}});
      Values sums = sums_of(x.to_doubles(), w).first;
      const Values before = residual.to_doubles();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
      expect_close(y, sums, 2 * tolerance(t), absolute, "added");
    }
}

// Kernels that begin before the last one has ended must not see old values: the same bytes as with a pause after each of them.
TEST_F(CudaRowProductsTest, ChainsGiveTheSameBytes) {
  const int64_t k = 2560, hidden = 4096, layers = 12;
  std::vector<Tensor> gates, ups, downs;
  for (int64_t i = 0; i < layers; ++i) {
    gates.push_back(random({hidden, k}, DType::BF16, 0.02));
    ups.push_back(random({hidden, k}, DType::BF16, 0.02));
    downs.push_back(random({k, hidden}, DType::BF16, 0.02));
  }
  const Tensor start = random({1, k}, DType::BF16), norm = some_norm(k, DType::BF16);
  const Tensor x = blank({1, k}, DType::BF16), y = blank({1, k}, DType::BF16), h = blank({1, hidden}, DType::BF16);
  stream->wait();
  const auto chain = [&](bool pausing) {
    x.copy_from(start);
    for (size_t i = 0; i < at(layers); ++i) {
      const Tensor two[] = {gates[i], ups[i]};
      const Tensor &from = i % 2 == 0 ? x : y, &to = i % 2 == 0 ? y : x;
      token_kernels().row_products({from, &norm, kEps, two, RowResult::Swiglu, nullptr, {&h, 1}});
      if (pausing) stream->wait();
      token_kernels().row_products({h, nullptr, 0.0f, {&downs[i], 1}, RowResult::Added, &from, {&to, 1}});
      if (pausing) stream->wait();
    }
  };
  chain(true);
  const auto wanted = x.to_floats();
  for (float v : wanted) ASSERT_TRUE(std::isfinite(v));
  for (int repeat = 0; repeat < 20; ++repeat) {
    chain(false);
    ASSERT_EQ(x.to_floats(), wanted) << "launched one by one";
  }
  const auto graph = stream->capture([&] { chain(false); });
  for (int repeat = 0; repeat < 20; ++repeat) {
    x.fill(0.0);
    y.fill(0.0);
    h.fill(0.0);
    graph->replay();
    ASSERT_EQ(x.to_floats(), wanted) << "captured";
  }
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

// --- Attention of a new token, from the products on ---

class CudaTokenAttentionTest : public CudaTest {
 protected:
  struct Case {
    int64_t heads, key_heads, width, keys, row;
    bool normed = true, masked = false, interleaved = false;
    DType of_norms = DType::BF16;
  };
  static constexpr float kEps = 1e-5f;

  static std::vector<double> turned(std::vector<double> x, const std::vector<double>& norm, const std::vector<double>& cosine,
                                    const std::vector<double>& sine, bool interleaved) {
    const size_t width = x.size(), half = width / 2;
    if (!norm.empty()) {
      double squares = 0;
      for (double v : x) squares += v * v;
      for (size_t i = 0; i < width; ++i)
        x[i] *= norm[i] / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(kEps));
    }
    for (size_t p = 0; p < half; ++p) {
      double &a = x[interleaved ? 2 * p : p], &b = x[interleaved ? 2 * p + 1 : p + half];
      const double first = a * cosine[p] - b * sine[p];
      b = b * cosine[p] + a * sine[p];
      a = first;
    }
    return x;
  }

  void compare(const Case& c) {
    const std::string what = fmt::format("heads {}/{} width {} keys {} row {}{}{}{} norms {}", c.heads, c.key_heads, c.width,
                                         c.keys, c.row, c.normed ? " normed" : "", c.masked ? " masked" : "",
                                         c.interleaved ? " interleaved" : "", name_of(c.of_norms));
    const DType t = DType::BF16;
    const Tensor q = random({1, 1, c.heads, c.width}, t, 1.5), k = random({1, 1, c.key_heads, c.width}, t);
    const Tensor cache = random({2, c.keys + 5, c.key_heads, c.width}, t), before = cache.cloned();
    const Tensor keys = cache.narrowed(0, 0, 1).narrowed(1, 2, c.keys), values = cache.narrowed(0, 1, 1).narrowed(1, 2, c.keys);
    const Tensor q_norm = random({c.width}, c.of_norms), k_norm = random({c.width}, c.of_norms);
    std::vector<float> angles(at(c.width / 2)), cosines, sines;
    for (float& a : angles) a = std::uniform_real_distribution<float>(-3.0f, 3.0f)(generator);
    for (float a : angles) cosines.push_back(std::cos(a)), sines.push_back(std::sin(a));
    const Tensor cosine = Tensor::from<float>(*stream, DType::F32, {1, c.width / 2}, cosines);
    const Tensor sine = Tensor::from<float>(*stream, DType::F32, {1, c.width / 2}, sines);
    std::vector<int32_t> visible(at(c.keys), 1);
    if (c.masked) {
      for (int32_t& m : visible) m = generator() % 3 != 0 ? 1 : 0;
      if (c.keys > 130) std::fill_n(visible.begin() + 64, 65, 0);  // a whole block's share
      visible[at(c.row)] = 1;
    }
    const Tensor mask = ints({1, c.keys}, visible), y = blank({1, 1, c.heads, c.width}, t);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    const TokenAttentionArgs args{q,
                                  k,
                                  c.normed ? &q_norm : nullptr,
                                  c.normed ? &k_norm : nullptr,
                                  cosine,
                                  sine,
                                  keys,
                                  values,
                                  c.row,
                                  c.masked ? &mask : nullptr,
                                  y,
                                  kEps,
                                  scale,
                                  c.interleaved};
    ASSERT_TRUE(cuda::token_attention_fits(args)) << what;
    stream->wait();
    token_kernels().token_attention(args);

    const auto cs = cosine.to_doubles(), ss = sine.to_doubles();
    const std::vector<double> none, qn = c.normed ? q_norm.to_doubles() : none, kn = c.normed ? k_norm.to_doubles() : none;
    const auto head_of = [&](const std::vector<double>& all, size_t head) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(head * at(c.width));
      return std::vector<double>(first, first + c.width);
    };
    // The new key, and nothing else of the cache.
    const Values after = cache.to_doubles();
    Values expected = before.to_doubles();
    const auto key_at = [&](int64_t token, size_t head) { return (at(2 + token) * at(c.key_heads) + head) * at(c.width); };
    Values new_keys;
    for (size_t g = 0; g < at(c.key_heads); ++g)
      for (double v : turned(head_of(k.to_doubles(), g), kn, cs, ss, c.interleaved)) new_keys.push_back(v);
    expect_close(keys.narrowed(1, c.row, 1), new_keys, 0x1p-8, 1e-5, what + ": new key");
    for (size_t i = 0; i < after.size(); ++i) {
      const size_t first = key_at(c.row, 0);
      if (i >= first && i < first + at(c.key_heads * c.width)) expected[i] = after[i];
      ASSERT_EQ(after[i], expected[i]) << what << ": cache at " << i;
    }
    const size_t offset = at(c.keys + 5) * at(c.key_heads) * at(c.width);  // from keys to values
    Values wanted;
    for (size_t h = 0; h < at(c.heads); ++h) {
      const Values query = turned(head_of(q.to_doubles(), h), qn, cs, ss, c.interleaved);
      const size_t g = h / at(c.heads / c.key_heads);
      Values p(at(c.keys)), sums(at(c.width), 0.0);
      double top = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t token = 0; token < c.keys; ++token) {
        double s = 0;
        for (size_t d = 0; d < at(c.width); ++d) s += query[d] * after[key_at(token, g) + d];
        p[at(token)] = visible[at(token)] != 0 ? s * static_cast<double>(scale) : -std::numeric_limits<double>::infinity();
        top = std::max(top, p[at(token)]);
      }
      for (int64_t token = 0; token < c.keys; ++token) {
        const double weight = std::isinf(p[at(token)]) ? 0.0 : std::exp(p[at(token)] - top);
        total += weight;
        for (size_t d = 0; d < at(c.width); ++d) sums[d] += weight * after[offset + key_at(token, g) + d];
      }
      for (double s : sums) wanted.push_back(s / total);
    }
    expect_close(y, wanted, 0x1p-8, 1e-4, what);
  }
};

TEST_F(CudaTokenAttentionTest, AgreesWithTheEquation) {
  struct Heads {
    int64_t heads, key_heads;
  };
  for (int64_t width : {8, 64, 72, 128, 136, 256})
    for (int64_t keys : {1, 7, 63, 64, 65, 130, 257, 700})
      for (const auto& [heads, key_heads] : {Heads{1, 1}, {6, 2}})
        for (bool masked : {false, true}) {
          const int64_t row = masked ? 0 : keys - 1;
          const bool normed = (keys & 1) != 0 || width == 128;
          compare({.heads = heads,
                   .key_heads = key_heads,
                   .width = width,
                   .keys = keys,
                   .row = row,
                   .normed = normed,
                   .masked = masked,
                   .interleaved = width == 72,
                   .of_norms = masked ? DType::F32 : DType::BF16});
        }
  compare({.heads = 32, .key_heads = 8, .width = 128, .keys = 256, .row = 100, .masked = true});
  compare({.heads = 32, .key_heads = 8, .width = 128, .keys = 8192, .row = 8191});
}

TEST_F(CudaTokenAttentionTest, OtherInputs) {
  const int64_t width = 20, keys = 9;  // no multiple of eight
  const DType t = DType::F32;
  const Tensor q = random({1, 1, 4, width}, t), k = random({1, 1, 2, width}, t), all = random({1, keys, 2, width}, t);
  const Tensor values = random(all.shape(), t), norm = random({width}, t), y = blank(q.shape(), t);
  const Tensor cosine = random({1, width / 2}, DType::F32), sine = random({1, width / 2}, DType::F32);
  const TokenAttentionArgs args{q, k, &norm, &norm, cosine, sine, all, values, 4, nullptr, y, kEps, 0.2f, false};
  ASSERT_FALSE(cuda::token_attention_fits(args));
  token_kernels().token_attention(args);
  const Tensor query = blank(q.shape(), t), key = blank(k.shape(), t), same = blank(q.shape(), t);
  kernels().norm_rope({q, norm, nullptr, cosine, sine, query, kEps, false});
  kernels().norm_rope({k, norm, nullptr, cosine, sine, key, kEps, false});
  EXPECT_EQ(all.narrowed(1, 4, 1).to_floats(), key.to_floats());
  kernels().attention({query, all, values, same, nullptr, nullptr, 0.2f, false});
  EXPECT_EQ(y.to_floats(), same.to_floats());
}

// A layer's chain: the attention reads what the products before it have just written, and early what they have not.
TEST_F(CudaTokenAttentionTest, ChainsGiveTheSameBytes) {
  const DType t = DType::BF16;
  const int64_t width = 128, heads = 32, key_heads = 8, hidden = 2560, keys = 256, layers = 8;
  const Tensor wq = random({heads * width, hidden}, t, 0.02), wk = random({key_heads * width, hidden}, t, 0.02);
  const Tensor wv = random({key_heads * width, hidden}, t, 0.02), wo = random({hidden, heads * width}, t, 0.02);
  const Tensor norm = random({hidden}, t), head_norm = random({width}, t), start = random({1, hidden}, t);
  const Tensor cosine = random({1, width / 2}, DType::F32), sine = random({1, width / 2}, DType::F32);
  const Tensor cache = random({2 * layers, keys, key_heads, width}, t), before = cache.cloned();
  const Tensor x = blank({1, hidden}, t), y = blank({1, hidden}, t), q = blank({1, heads * width}, t),
               k = blank({1, key_heads * width}, t), seen = blank({1, 1, heads, width}, t);
  stream->wait();
  const auto chain = [&](bool pausing) {
    x.copy_from(start);
    for (int64_t i = 0; i < layers; ++i) {
      const Tensor all_keys = cache.narrowed(0, 2 * i, 1), values = cache.narrowed(0, 2 * i + 1, 1);
      const Tensor weights[] = {wq, wk, wv}, places[] = {q, k, values.narrowed(1, 0, 1).reshaped({1, key_heads * width})};
      const Tensor &from = i % 2 == 0 ? x : y, &to = i % 2 == 0 ? y : x;
      token_kernels().row_products({from, &norm, kEps, weights, RowResult::Plain, nullptr, places});
      if (pausing) stream->wait();
      token_kernels().token_attention({q.reshaped({1, 1, heads, width}), k.reshaped({1, 1, key_heads, width}), &head_norm,
                                       &head_norm, cosine, sine, all_keys, values, 0, nullptr, seen, kEps, 0.088f, false});
      if (pausing) stream->wait();
      token_kernels().row_products(
          {seen.reshaped({1, heads * width}), nullptr, 0.0f, {&wo, 1}, RowResult::Added, &from, {&to, 1}});
      if (pausing) stream->wait();
    }
  };
  chain(true);
  const auto wanted = x.to_floats(), cached = cache.to_floats();
  for (int repeat = 0; repeat < 20; ++repeat) {
    cache.copy_from(before);
    chain(false);
    ASSERT_EQ(x.to_floats(), wanted) << "launched one by one";
    ASSERT_EQ(cache.to_floats(), cached);
  }
  const auto graph = stream->capture([&] { chain(false); });
  for (int repeat = 0; repeat < 20; ++repeat) {
    cache.copy_from(before);
    q.fill(0.0);
    seen.fill(0.0);
    graph->replay();
    ASSERT_EQ(x.to_floats(), wanted) << "captured";
    ASSERT_EQ(cache.to_floats(), cached);
  }
}

}  // namespace

}  // namespace flux2
