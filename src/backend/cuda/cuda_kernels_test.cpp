#include <algorithm>
#include <cstring>
#include <functional>

#include "backend/cuda/cuda_test.h"
#include "tensor/blocks.h"

// Every kernel against a plain loop in double on the host, F32 and BF16, on even, odd, strided and misaligned tensors.
namespace flux2 {

namespace {

using Values = std::vector<double>;

constexpr DType kTypes[] = {DType::F32, DType::BF16};

class CudaKernelsTest : public CudaTest {
 protected:
  // The same values as a view inside a larger tensor, its rows starting at element `offset` of rows `extra` longer.
  Tensor inside(const Tensor& x, int64_t offset, int64_t extra) {
    const Tensor wide = blank(x.shape().with(-1, x.dim(-1) + extra), x.dtype());
    const Tensor view = wide.narrowed(-1, offset, x.dim(-1));
    view.copy_from(x);
    return view;
  }
  // Contiguous, aligned view, misaligned view.
  std::vector<Tensor> variants(const Tensor& x) { return {x, inside(x, 8, 24), inside(x, 1, 3)}; }
};

Values map(const Tensor& x, const std::function<double(double)>& f) {
  Values v = x.to_doubles();
  for (double& e : v) e = f(e);
  return v;
}
Values zip(const Tensor& a, const Tensor& b, const std::function<double(double, double)>& f) {
  Values v = a.to_doubles();
  const Values w = b.to_doubles();
  for (size_t i = 0; i < v.size(); ++i) v[i] = f(v[i], w[i]);
  return v;
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

TEST_F(CudaKernelsTest, Fill) {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32}) {
    const Tensor x = blank({3, 17}, t);
    x.narrowed(1, 2, 5).fill(7.0);
    Values wanted(51, 12345.0);
    if (t == DType::BF16) std::fill(wanted.begin(), wanted.end(), 12352.0);  // 12345 in bf16
    if (t == DType::F16) std::fill(wanted.begin(), wanted.end(), 12344.0);
    for (size_t r = 0; r < 3; ++r) std::fill_n(wanted.begin() + static_cast<long>(r * 17 + 2), 5, 7.0);
    EXPECT_EQ(x.to_doubles(), wanted) << name_of(t);
  }
}

TEST_F(CudaKernelsTest, CopyConvertsEveryPair) {
  const Tensor source = random({5, 24}, DType::BF16, 20.0);  // exact in F32, F64; near in F16
  for (DType from : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32})
    for (DType to : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32})
      for (const Tensor& x : variants(source.cast(from)))
        for (const Tensor& y : variants(blank({5, 24}, to))) {
          y.copy_from(x);
          const Values wanted = to == DType::I32 ? map(x, [](double v) { return std::trunc(v); }) : x.to_doubles();
          const double relative = to == DType::BF16 ? 0x1p-8 : to == DType::F16 ? 0x1p-11 : 1e-7;
          expect_close(y, wanted, relative, 1e-7, std::string(name_of(from)) + " to " + name_of(to));
        }
}

TEST_F(CudaKernelsTest, CopyPermutesAndBroadcasts) {
  for (DType t : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8}) {
    Values values(2 * 3 * 5 * 8);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251);
    std::vector<uint8_t> small(values.begin(), values.end());
    Tensor x;
    if (t == DType::U8) {
      x = Tensor::empty(*stream, t, {2, 3, 5, 8});
      stream->upload(x.raw(), small.data(), small.size());
    } else {
      x = Tensor::from(*stream, DType::F64, {2, 3, 5, 8}, std::span<const double>(values)).cast(t);
    }
    for (const std::vector<int>& axes : {std::vector<int>{0, 2, 1, 3}, {3, 1, 0, 2}, {1, 0, 3, 2}}) {
      const Tensor p = x.permuted(axes);
      Values wanted;
      for (int64_t a = 0; a < p.dim(0); ++a)
        for (int64_t b = 0; b < p.dim(1); ++b)
          for (int64_t c = 0; c < p.dim(2); ++c)
            for (int64_t d = 0; d < p.dim(3); ++d)
              wanted.push_back(values[at(a * p.stride(0) + b * p.stride(1) + c * p.stride(2) + d * p.stride(3))]);
      EXPECT_EQ(p.cloned().to_doubles(), wanted) << name_of(t);
    }
  }
  const Tensor row = random({1, 9}, DType::BF16);
  const Values once = row.to_doubles(), all = row.expanded({4, 9}).cloned().to_doubles();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], once[i % 9]);
}

TEST_F(CudaKernelsTest, CopyUnpacksStoredTypes) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (DType t : {DType::F8_E4M3, DType::F8_E5M2}) {
    const Tensor x = Tensor::empty(*stream, t, {256});
    stream->upload(x.raw(), codes.data(), codes.size());
    for (DType to : kTypes) {
      const Values actual = x.cast(to).to_doubles();
      for (size_t i = 0; i < 256; ++i) {
        const float wanted = t == DType::F8_E4M3 ? e4m3_to_float(codes[i]) : e5m2_to_float(codes[i]);
        if (std::isnan(wanted)) EXPECT_TRUE(std::isnan(actual[i])) << i;
        else EXPECT_EQ(actual[i], wanted) << i;
      }
    }
  }
  std::vector<BlockQ8_0> q8(6);
  std::vector<BlockQ4_0> q4(6);
  Values wanted8, wanted4;
  for (size_t b = 0; b < 6; ++b) {
    q8[b].scale = q4[b].scale = to_f16(0.125f * static_cast<float>(b + 1));
    for (int j = 0; j < 32; ++j) q8[b].q[j] = static_cast<int8_t>(j * 8 - 128 + static_cast<int>(b));
    for (int j = 0; j < 16; ++j) q4[b].q[j] = static_cast<uint8_t>(j * 16 + (15 - j) + static_cast<int>(b));
    for (int j = 0; j < 32; ++j) {
      wanted8.push_back(static_cast<double>(to_float(q8[b].scale)) * q8[b].q[j]);
      const int nibble = j < 16 ? q4[b].q[j] & 15 : q4[b].q[j - 16] >> 4;
      wanted4.push_back(static_cast<double>(to_float(q4[b].scale)) * (nibble - 8));
    }
  }
  const Tensor x8 = Tensor::empty(*stream, DType::Q8_0, {3, 64}), x4 = Tensor::empty(*stream, DType::Q4_0, {3, 64});
  stream->upload(x8.raw(), q8.data(), q8.size() * sizeof(BlockQ8_0));
  stream->upload(x4.raw(), q4.data(), q4.size() * sizeof(BlockQ4_0));
  for (DType to : kTypes)
    for (const Tensor& y : variants(blank({3, 64}, to))) {
      y.copy_from(x8);
      expect_close(y, wanted8, tolerance(to), 0, "Q8_0");
      y.copy_from(x4);
      expect_close(y, wanted4, tolerance(to), 0, "Q4_0");
    }

  // The same stored values as weights and as an embedding table.
  for (DType to : kTypes) {
    const Tensor x = random({5, 64}, to);
    for (const auto& [w, values] : {std::pair{x8, wanted8}, std::pair{x4, wanted4}}) {
      const Tensor y = blank({5, 3}, to);
      kernels().linear({x, w, nullptr, y});
      Values wanted;
      const Values xs = x.to_doubles();
      for (size_t m = 0; m < 5; ++m)
        for (size_t n = 0; n < 3; ++n) {
          double s = 0;
          for (size_t k = 0; k < 64; ++k) {
            const auto stored = static_cast<float>(values[n * 64 + k]);
            s += xs[m * 64 + k] * static_cast<double>(to == DType::BF16 ? to_float(to_bf16(stored)) : stored);
          }
          wanted.push_back(s);
        }
      expect_close(y, wanted, tolerance(to), 2e-3, "linear with a quantised weight");

      const Tensor e = blank({2, 64}, to);
      kernels().embedding({ints({2}, {2, 0}), w, e});
      Values rows(values.begin() + 128, values.end());
      rows.insert(rows.end(), values.begin(), values.begin() + 64);
      expect_close(e, rows, tolerance(to), 0, "embedding in a quantised table");
    }
  }
}

// Random bytes make random blocks; the halves among them are set to something finite.
TEST_F(CudaKernelsTest, UnpacksEveryBlockTypeAsTheHostDoes) {
  const std::pair<DType, std::vector<int>> types[] = {
      {DType::Q8_0, {0}},   {DType::Q4_0, {0}},      {DType::Q4_1, {0, 2}}, {DType::Q5_0, {0}},    {DType::Q5_1, {0, 2}},
      {DType::IQ4_NL, {0}}, {DType::Q2_K, {80, 82}}, {DType::Q3_K, {108}},  {DType::Q4_K, {0, 2}}, {DType::Q5_K, {0, 2}},
      {DType::Q6_K, {208}}, {DType::IQ4_XS, {0}},    {DType::F8_128, {}},   {DType::NVFP4, {}}};
  for (const auto& [dtype, halves] : types) {
    const int64_t rows = 3, columns = 512;
    std::vector<uint8_t> bytes(static_cast<size_t>(bytes_for(dtype, rows * columns)));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(generator());
    const auto size = static_cast<size_t>(info(dtype).block_bytes);
    for (size_t block = 0; block < bytes.size(); block += size)
      for (int at : halves) {
        const f16 v = to_f16(std::uniform_real_distribution<float>(-1.0f, 1.0f)(generator));
        std::memcpy(bytes.data() + block + at, &v, sizeof v);
      }
    if (halves.empty())  // a float, then e4m3 values or scales: no NaN among them
      for (size_t block = 0; block < bytes.size(); block += size) {
        const float v = std::uniform_real_distribution<float>(-1.0f, 1.0f)(generator);
        std::memcpy(bytes.data() + block, &v, sizeof v);
        for (size_t i = sizeof v; i < size; ++i)
          if ((bytes[block + i] & 0x7f) == 0x7f) bytes[block + i] ^= 0x11;
      }
    std::vector<float> wanted(static_cast<size_t>(rows * columns));
    decode_blocks(dtype, bytes.data(), rows * columns, wanted.data());

    const Tensor w = Tensor::empty(*stream, dtype, {rows, columns});
    stream->upload(w.raw(), bytes.data(), bytes.size());
    EXPECT_EQ(w.cast(DType::F32).to_floats(), wanted) << name_of(dtype);
    const std::vector<float> rounded = w.cast(DType::BF16).to_floats();
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(rounded[i], to_float(to_bf16(wanted[i]))) << name_of(dtype) << " " << i;

    const Tensor e = blank({2, columns}, DType::F32);
    kernels().embedding({ints({2}, {2, 0}), w, e});
    std::vector<float> looked_up(wanted.begin() + 2 * columns, wanted.end());
    looked_up.insert(looked_up.end(), wanted.begin(), wanted.begin() + columns);
    EXPECT_EQ(e.to_floats(), looked_up) << name_of(dtype);

    const Tensor x = random({5, columns}, DType::F32), y = blank({5, rows}, DType::F32), plain = blank({5, rows}, DType::F32);
    kernels().linear({x, w, nullptr, y});
    kernels().linear({x, w.cast(DType::F32), nullptr, plain});
    EXPECT_EQ(y.to_floats(), plain.to_floats()) << name_of(dtype);
  }
}

TEST_F(CudaKernelsTest, UnaryAndItsGradient) {
  const std::tuple<Unary, double (*)(double), double (*)(double)> cases[] = {
      {Unary::Silu, silu, silu_slope},
      {Unary::Exp, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }},
      {Unary::Abs, [](double x) { return std::abs(x); }, [](double x) { return x > 0   ? 1.0
                                                                               : x < 0 ? -1.0
                                                                                       : 0.0; }},
      {Unary::Square, [](double x) { return x * x; }, [](double x) { return 2 * x; }}};
  for (DType t : kTypes)
    for (const Shape& shape : {Shape{1}, Shape{4, 64}, Shape{3, 37}, Shape{2, 3, 72}})
      for (const Tensor& x : variants(random(shape, t, 3.0)))
        for (const auto& [op, f, slope] : cases) {
          const Tensor y = blank(shape, t), dy = random(shape, t), dx = blank(shape, t);
          kernels().unary({op, x, y});
          expect_close(y, map(x, f), tolerance(t), 1e-6, "unary");
          kernels().unary_grad({op, x, dy, dx});
          expect_close(dx, zip(x, dy, [s = slope](double v, double d) { return d * s(v); }), tolerance(t), 2e-6, "unary_grad");
        }
}

TEST_F(CudaKernelsTest, BinaryBroadcasts) {
  const std::pair<Shape, Shape> shapes[] = {
      {{4, 64}, {4, 64}},       {{4, 64}, {1, 64}},      {{4, 64}, {4, 1}}, {{3, 5, 37}, {1, 5, 1}},
      {{2, 1, 40}, {2, 7, 40}}, {{2, 7, 40}, {1, 1, 1}}, {{1}, {1}}};
  for (DType t : kTypes)
    for (const auto& [sa, sb] : shapes)
      for (const Tensor& a0 : variants(random(sa, t)))
        for (const Tensor& b0 : variants(random(sb, t)))
          for (Binary op : {Binary::Add, Binary::Sub, Binary::Mul}) {
            const Shape shape = broadcast_shape(sa, sb);
            const Tensor a = a0.expanded(shape), b = b0.expanded(shape), y = blank(shape, t);
            kernels().binary({op, a, b, y});
            const auto f = [op](double u, double v) { return op == Binary::Add ? u + v : op == Binary::Sub ? u - v : u * v; };
            expect_close(y, zip(a, b, f), tolerance(t), 1e-7, "binary");
            if (a.is_contiguous()) {  // in place
              const Values wanted = zip(a, b, f);
              kernels().binary({op, a, b, a});
              expect_close(a, wanted, tolerance(t), 1e-7, "binary in place");
              a.copy_from(random(shape, t));
            }
          }
}

TEST_F(CudaKernelsTest, ScaleGatedAddSwiglu) {
  for (DType t : kTypes)
    for (const Shape& shape : {Shape{2, 3, 64}, Shape{2, 5, 37}, Shape{1, 1, 8}}) {
      const Tensor gate = random(shape.with(1, 1), t);
      for (const Tensor& x : variants(random(shape, t)))
        for (const Tensor& z : variants(random(shape, t))) {
          const Tensor y = blank(shape, t);
          kernels().scale({x, y, -1.5, 0.25});
          expect_close(y, map(x, [](double v) { return -1.5 * v + 0.25; }), tolerance(t), 1e-6, "scale");
          kernels().gated_add({x, gate, z, y});
          Values wanted = x.to_doubles();
          const Values g = gate.expanded(shape).cloned().to_doubles(), zs = z.to_doubles();
          for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += g[i] * zs[i];
          expect_close(y, wanted, tolerance(t), 1e-6, "gated_add");
          kernels().swiglu({x, z, y});
          expect_close(y, zip(x, z, [](double u, double v) { return silu(u) * v; }), tolerance(t), 1e-6, "swiglu");

          const Tensor dy = random(shape, t), dgate = blank(shape, t), dup = blank(shape, t);
          kernels().swiglu_grad({x, z, dy, dgate, dup});
          const Values d = dy.to_doubles(), xs = x.to_doubles();
          Values wanted_gate(d.size()), wanted_up(d.size());
          for (size_t i = 0; i < d.size(); ++i)
            wanted_gate[i] = d[i] * zs[i] * silu_slope(xs[i]), wanted_up[i] = d[i] * silu(xs[i]);
          expect_close(dgate, wanted_gate, tolerance(t), 2e-6, "swiglu_grad gate");
          expect_close(dup, wanted_up, tolerance(t), 2e-6, "swiglu_grad up");
        }
    }
}

TEST_F(CudaKernelsTest, Sum) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 5, 7}, {1, 1, 1}},     {{3, 5, 7}, {3, 1, 7}},     {{3, 5, 7}, {1, 5, 1}},
                                            {{3, 5, 7}, {3, 5, 7}},     {{2, 70000}, {1, 1}},       {{2, 70000}, {2, 1}},
                                            {{2, 20000}, {1, 20000}},   {{100, 20000}, {1, 20000}}, {{5, 300, 6}, {5, 1, 6}},
                                            {{3, 900, 32}, {1, 1, 32}}, {{5000, 37}, {1, 37}}};
  for (DType t : kTypes)
    for (const auto& [from, to] : shapes)
      for (const Tensor& x : variants(random(from, t))) {
        const Tensor y = blank(to, t);
        kernels().sum({x, y});
        Values wanted(at(to.numel()), 0.0);
        const Values xs = x.to_doubles();
        const Shape strides = from.strides(), into = to.strides();
        for (int64_t i = 0; i < from.numel(); ++i) {
          int64_t o = 0;
          for (int axis = 0; axis < from.rank(); ++axis)
            if (to[axis] != 1) o += i / strides[axis] % from[axis] * into[axis];
          wanted[at(o)] += xs[at(i)];
        }
        expect_close(y, wanted, tolerance(t), 1e-6, "sum of " + from.str() + " to " + to.str());
      }
}

TEST_F(CudaKernelsTest, Norms) {
  for (DType t : kTypes)
    for (int64_t n : {1, 3, 8, 37, 128, 256, 264, 520, 3072, 6144, 8200, 10000})
      for (const Tensor& x : variants(random({2, 3, n}, t, 2.0))) {
        const Values xs = x.to_doubles();
        const Tensor shift = random({2, 1, 2 * n}, t).narrowed(2, n, n), scale = random({2, 1, n}, t);
        const Values shifts = shift.to_doubles(), scales = scale.to_doubles();
        for (DType weight_type : kTypes) {
          const Tensor weight = random({n}, weight_type);
          const Values w = weight.to_doubles();
          Values layer(xs.size()), rms(xs.size()), modulated(xs.size());
          for (int64_t row = 0; row < 6; ++row) {
            double mean = 0, squares = 0, spread = 0;
            for (int64_t c = 0; c < n; ++c) mean += xs[at(row * n + c)] / static_cast<double>(n);
            for (int64_t c = 0; c < n; ++c) {
              const double v = xs[at(row * n + c)];
              squares += v * v / static_cast<double>(n);
              spread += (v - mean) * (v - mean) / static_cast<double>(n);
            }
            for (int64_t c = 0; c < n; ++c) {
              const size_t i = at(row * n + c), b = at(row / 3 * n + c);
              rms[i] = xs[i] / std::sqrt(squares + 1e-6) * w[at(c)];
              layer[i] = (xs[i] - mean) / std::sqrt(spread + 1e-6);
              modulated[i] = (1 + scales[b]) * layer[i] + shifts[b];
            }
          }
          const std::string what = fmt::format(" of {} columns, {} with {}", n, name_of(t), name_of(weight_type));
          for (const Tensor& y : {blank({2, 3, n}, t), inside(blank({2, 3, n}, t), 1, 5)}) {
            kernels().rms_norm({x, weight, y, 1e-6f});
            expect_close(y, rms, tolerance(t), 2e-5, "rms_norm" + what);
            kernels().layer_norm({x, y, 1e-6f});
            expect_close(y, layer, tolerance(t), 2e-5, "layer_norm" + what);
            kernels().modulated_norm({x, shift, scale, y, 1e-6f});
            expect_close(y, modulated, tolerance(t), 4e-5, "modulated_norm" + what);
          }
        }
      }
}

TEST_F(CudaKernelsTest, RmsNormOfHeadsInsideAProjection) {
  const Tensor qkv = random({2, 5, 3 * 4 * 128}, DType::BF16), weight = random({128}, DType::BF16);
  const Tensor k = qkv.narrowed(2, 512, 512).reshaped({2, 5, 4, 128}), y = blank({2, 5, 4, 128}, DType::BF16);
  kernels().rms_norm({k, weight, y, 1e-6f});
  const Values xs = k.to_doubles(), w = weight.to_doubles();
  Values wanted(xs.size());
  for (size_t row = 0; row < xs.size() / 128; ++row) {
    double squares = 0;
    for (size_t c = 0; c < 128; ++c) squares += xs[row * 128 + c] * xs[row * 128 + c] / 128;
    for (size_t c = 0; c < 128; ++c) wanted[row * 128 + c] = xs[row * 128 + c] / std::sqrt(squares + 1e-6) * w[c];
  }
  expect_close(y, wanted, tolerance(DType::BF16), 1e-5, "rms_norm of heads");
}

TEST_F(CudaKernelsTest, GroupNorm) {
  struct Case {
    Shape shape;
    int groups;
  };
  for (DType t : kTypes)
    for (const auto& [shape, groups] :
         {Case{{2, 5, 7, 32}, 32}, Case{{1, 9, 9, 64}, 32}, Case{{2, 40, 40, 128}, 32}, Case{{1, 3, 3, 12}, 4},
          Case{{1, 2, 1, 2560}, 5}, Case{{1, 1, 1, 300}, 3}, Case{{1, 200, 300, 8}, 2}})
      for (bool silu_too : {false, true})
        for (double mean : {0.0, 100.0}) {
          const Tensor x = random(shape, t), y = blank(shape, t);
          kernels().scale({x, x, 1.0, mean});
          const int64_t channels = shape[3], size = channels / groups, positions = shape[1] * shape[2];
          const Tensor weight = random({channels}, t), bias = random({channels}, DType::F32);
          kernels().group_norm({x, weight, bias, y, groups, 1e-6f, silu_too});
          const Values xs = x.to_doubles(), w = weight.to_doubles(), b = bias.to_doubles();
          Values wanted(xs.size());
          for (int64_t n = 0; n < shape[0]; ++n)
            for (int64_t g = 0; g < groups; ++g) {
              double average = 0, variance = 0;
              const auto each = [&](auto&& f) {
                for (int64_t p = 0; p < positions; ++p)
                  for (int64_t c = g * size; c < (g + 1) * size; ++c) f(at((n * positions + p) * channels + c), at(c));
              };
              const double count = static_cast<double>(positions * size);
              each([&](size_t i, size_t) { average += xs[i] / count; });
              each([&](size_t i, size_t) { variance += (xs[i] - average) * (xs[i] - average) / count; });
              each([&](size_t i, size_t c) {
                const double v = (xs[i] - average) / std::sqrt(variance + 1e-6) * w[c] + b[c];
                wanted[i] = silu_too ? silu(v) : v;
              });
            }
          expect_close(y, wanted, tolerance(t), mean == 0 ? 2e-5 : 2e-3, "group_norm of " + shape.str());
        }
}

TEST_F(CudaKernelsTest, Rope) {
  for (DType t : kTypes)
    for (int64_t d : {2, 6, 32, 128})
      for (bool interleaved : {false, true})
        for (bool inverse : {false, true})
          for (const Tensor& x : variants(random({2, 5, 3, d}, t)))
            for (const Tensor& y : variants(blank({2, 5, 3, d}, t))) {
              const Tensor cosine = random({5, d / 2}, DType::F32), sine = random({5, d / 2}, DType::F32);
              kernels().rope({x, cosine, sine, y, interleaved, inverse});
              const Values xs = x.to_doubles(), cs = cosine.to_doubles(), ss = sine.to_doubles();
              Values wanted(xs.size());
              for (int64_t row = 0; row < 30; ++row)
                for (int64_t i = 0; i < d / 2; ++i) {
                  const size_t table = at(row / 3 % 5 * (d / 2) + i);
                  const size_t a = at(row * d + (interleaved ? 2 * i : i)),
                               b = at(row * d + (interleaved ? 2 * i + 1 : i + d / 2));
                  const double c = cs[table], s = inverse ? -ss[table] : ss[table];
                  wanted[a] = xs[a] * c - xs[b] * s;
                  wanted[b] = xs[b] * c + xs[a] * s;
                }
              expect_close(y, wanted, tolerance(t), 5e-6, "rope");
            }
}

TEST_F(CudaKernelsTest, Embedding) {
  for (DType table_type : {DType::F32, DType::BF16, DType::F16})
    for (DType t : kTypes)
      for (const Tensor& table : variants(random({7, 33}, table_type))) {
        const Tensor y = blank({2, 2, 33}, t);
        kernels().embedding({ints({2, 2}, {6, 0, 3, 3}), table, y});
        const Values rows = table.to_doubles();
        Values wanted;
        for (int64_t id : {6, 0, 3, 3}) wanted.insert(wanted.end(), rows.begin() + id * 33, rows.begin() + (id + 1) * 33);
        expect_close(y, wanted, tolerance(t), 0, "embedding");
      }
  const Tensor y = blank({2, 4}, DType::F32);
  kernels().embedding({ints({2}, {-1, 7}), random({7, 4}, DType::F32), y});
  for (double v : y.to_doubles()) EXPECT_TRUE(std::isnan(v));
}

TEST_F(CudaKernelsTest, UpsampleAndItsGradient) {
  for (DType t : kTypes)
    for (int64_t c : {3, 8, 40}) {
      const Tensor x = random({2, 3, 5, c}, t), y = blank({2, 6, 10, c}, t);
      kernels().upsample({x, y});
      const Values xs = x.to_doubles(), ys = y.to_doubles();
      const Tensor dy = random({2, 6, 10, c}, t), dx = blank({2, 3, 5, c}, t);
      kernels().upsample_grad({dy, dx});
      const Values ds = dy.to_doubles();
      Values wanted(xs.size(), 0.0);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < 6; ++i)
          for (int64_t j = 0; j < 10; ++j)
            for (int64_t k = 0; k < c; ++k) {
              const size_t small = at(((b * 3 + i / 2) * 5 + j / 2) * c + k), large = at(((b * 6 + i) * 10 + j) * c + k);
              EXPECT_EQ(ys[large], xs[small]);
              wanted[small] += ds[large];
            }
      expect_close(dx, wanted, tolerance(t), 1e-6, "upsample_grad");
    }
}

// y = x · wᵀ + bias on the host.
Values product(const Values& x, const Values& w, const Values& bias, int64_t m, int64_t n, int64_t k) {
  Values y(at(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double s = bias.empty() ? 0 : bias[at(j)];
      for (int64_t l = 0; l < k; ++l) s += x[at(i * k + l)] * w[at(j * k + l)];
      y[at(i * n + j)] = s;
    }
  return y;
}

// What may be lost in absolute terms. Where a shape has no fused bias the product is rounded before the bias is
// added, so a result near zero keeps the rounding of its larger parts.
double rounding(DType t, bool with_bias, int64_t terms) {
  return (t == DType::BF16 && with_bias ? 0x1p-6 : 1e-5) * std::sqrt(static_cast<double>(terms));
}

TEST_F(CudaKernelsTest, LinearAndItsGradients) {
  struct Case {
    int64_t m, n, k;
  };
  for (DType t : kTypes)
    for (const auto& [m, n, k] :
         {Case{1, 1, 1}, Case{1, 64, 256}, Case{5, 3, 7}, Case{33, 17, 64}, Case{128, 136, 72}, Case{64, 3, 40}})
      for (DType weight_type : kTypes)
        for (const Tensor& x : variants(random({m, k}, t)))
          for (const Tensor& w : variants(random({n, k}, weight_type))) {
            const std::string what = fmt::format(" {}x{}x{} {} by {}", m, n, k, name_of(t), name_of(weight_type));
            const Values ws = w.cast(t).to_doubles();  // products run in the activations' dtype
            for (bool with_bias : {false, true}) {
              const Tensor bias = random({n}, weight_type), y = blank({m, n}, t);
              kernels().linear({x, w, with_bias ? &bias : nullptr, y});
              expect_close(y, product(x.to_doubles(), ws, with_bias ? bias.cast(t).to_doubles() : Values{}, m, n, k),
                           (with_bias ? 2 : 1) * tolerance(t, 8), rounding(t, with_bias, k), "linear" + what);
            }
            const Tensor dy = random({m, n}, t), dx = blank({m, k}, t);
            kernels().linear_grad_input({dy, w, dx});
            const Values ds = dy.to_doubles(), xs = x.to_doubles();
            Values wanted(at(m * k), 0.0), wanted_dw(at(n * k), 0.0);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j)
                for (int64_t l = 0; l < k; ++l) {
                  wanted[at(i * k + l)] += ds[at(i * n + j)] * ws[at(j * k + l)];
                  wanted_dw[at(j * k + l)] += ds[at(i * n + j)] * xs[at(i * k + l)];
                }
            expect_close(dx, wanted, tolerance(t, 8), 2e-4, "linear_grad_input" + what);
            const Tensor dw = blank({n, k}, weight_type);
            kernels().linear_grad_weight({dy, x, dw});
            expect_close(dw, wanted_dw, tolerance(weight_type, 8), 2e-4, "linear_grad_weight" + what);
          }
}

TEST_F(CudaKernelsTest, LinearIntoAView) {
  const Tensor x = random({9, 32}, DType::BF16), w = random({16, 32}, DType::BF16), wide = blank({9, 40}, DType::BF16);
  const Tensor y = wide.narrowed(1, 8, 16);
  kernels().linear({x, w, nullptr, y});
  expect_close(y, product(x.to_doubles(), w.to_doubles(), {}, 9, 16, 32), tolerance(DType::BF16), 1e-4, "linear into a view");
  for (double v : wide.narrowed(1, 24, 16).to_doubles()) EXPECT_EQ(v, 12352.0);  // what surrounds it is untouched
  for (double v : wide.narrowed(1, 0, 8).to_doubles()) EXPECT_EQ(v, 12352.0);
}

TEST_F(CudaKernelsTest, Conv2d) {
  struct Case {
    Shape x;
    int64_t out;
    int64_t kernel;
    int stride, pad, pad_end;
  };
  for (DType t : kTypes)
    for (const auto& c :
         {Case{{2, 6, 7, 3}, 5, 3, 1, 1, 1}, Case{{1, 8, 9, 16}, 8, 3, 1, 1, 1}, Case{{2, 8, 8, 8}, 16, 3, 2, 0, 1},
          Case{{1, 5, 5, 24}, 7, 1, 1, 0, 0}, Case{{1, 7, 6, 8}, 3, 3, 2, 1, 1}, Case{{1, 64, 64, 32}, 3, 3, 1, 1, 1},
          Case{{2, 16, 20, 64}, 128, 3, 1, 1, 1}, Case{{1, 18, 16, 128}, 64, 3, 2, 0, 1}, Case{{1, 9, 9, 64}, 32, 3, 2, 1, 1}}) {
      const int64_t height = (c.x[1] + c.pad + c.pad_end - c.kernel) / c.stride + 1,
                    width = (c.x[2] + c.pad + c.pad_end - c.kernel) / c.stride + 1;
      const Tensor x = random(c.x, t), w = random({c.out, c.kernel, c.kernel, c.x[3]}, t, 0.3), bias = random({c.out}, t);
      const Tensor y = blank({c.x[0], height, width, c.out}, t);
      kernels().conv2d({x, w, &bias, y, {c.stride, c.pad, c.pad}});
      const Values xs = x.to_doubles(), ws = w.to_doubles(), bs = bias.to_doubles();
      Values wanted;
      for (int64_t b = 0; b < c.x[0]; ++b)
        for (int64_t i = 0; i < height; ++i)
          for (int64_t j = 0; j < width; ++j)
            for (int64_t o = 0; o < c.out; ++o) {
              double s = bs[at(o)];
              for (int64_t r = 0; r < c.kernel; ++r)
                for (int64_t q = 0; q < c.kernel; ++q) {
                  const int64_t row = i * c.stride - c.pad + r, column = j * c.stride - c.pad + q;
                  if (row < 0 || row >= c.x[1] || column < 0 || column >= c.x[2]) continue;
                  for (int64_t k = 0; k < c.x[3]; ++k)
                    s += xs[at(((b * c.x[1] + row) * c.x[2] + column) * c.x[3] + k)] *
                         ws[at(((o * c.kernel + r) * c.kernel + q) * c.x[3] + k)];
                }
              wanted.push_back(s);
            }
      expect_close(y, wanted, tolerance(t, 8), rounding(t, true, c.kernel * c.kernel * c.x[3]), "conv2d of " + c.x.str());
    }
}

TEST_F(CudaKernelsTest, Conv2dAdd) {
  for (DType t : kTypes)
    for (const auto& [shape, out] : {std::pair<Shape, int64_t>{{2, 5, 4, 3}, 5}, {{1, 16, 12, 64}, 32}, {{2, 9, 8, 16}, 64}}) {
      const Tensor x = random(shape, t), w = random({out, 3, 3, shape[3]}, t, 0.3), bias = random({out}, t);
      const Tensor y = blank(shape.with(3, out), t), residual = random(y.shape(), t), plain = blank(y.shape(), DType::F32);
      const Tensor plain_bias = bias.cast(DType::F32);
      kernels().conv2d({x.cast(DType::F32), w.cast(DType::F32), &plain_bias, plain, {1, 1, 1}});
      const Values wanted = zip(plain, residual, [](double a, double b) { return a + b; });
      for (const Tensor* b : {&bias, static_cast<const Tensor*>(nullptr)}) {
        kernels().conv2d_add({x, w, b, residual, y, {1, 1, 1}});
        Values expected = wanted;
        const Values bs = bias.to_doubles();
        if (!b)
          for (size_t i = 0; i < expected.size(); ++i) expected[i] -= bs[i % bs.size()];
        expect_close(y, expected, tolerance(t, 8), rounding(t, true, 9 * shape[3]), "conv2d_add of " + shape.str());
      }
    }
}

// No plan of the library may add in an order that changes from run to run.
TEST_F(CudaKernelsTest, ConvolutionsGiveTheSameBytesEveryTime) {
  const Tensor x = random({1, 64, 64, 256}, DType::BF16), w = random({128, 3, 3, 256}, DType::BF16, 0.1),
               bias = random({128}, DType::BF16), residual = random({1, 64, 64, 128}, DType::BF16);
  Values first;
  for (int run = 0; run < 5; ++run) {
    const Tensor y = blank(residual.shape(), DType::BF16);
    kernels().conv2d_add({x, w, &bias, residual, y, {1, 1, 1}});
    if (run == 0) first = y.to_doubles();
    else EXPECT_EQ(y.to_doubles(), first);
  }
}

TEST_F(CudaKernelsTest, UpsampleConv2d) {
  for (DType t : kTypes)
    for (const auto& [shape, out] : {std::pair<Shape, int64_t>{{2, 3, 5, 3}, 4}, {{1, 1, 1, 8}, 8}, {{2, 16, 12, 64}, 32}}) {
      const Tensor x = random(shape, t), w = random({out, 3, 3, shape[3]}, t, 0.3), bias = random({out}, t);
      const Shape large{shape[0], 2 * shape[1], 2 * shape[2], shape[3]};
      const Tensor y = blank(large.with(3, out), t), wanted = blank(y.shape(), DType::F32), upsampled = blank(large, DType::F32);
      kernels().upsample_conv2d({x, w, &bias, y});
      kernels().upsample({x.cast(DType::F32), upsampled});
      const Tensor plain_bias = bias.cast(DType::F32);
      kernels().conv2d({upsampled, w.cast(DType::F32), &plain_bias, wanted, {1, 1, 1}});
      // Taps are rounded after they were added: an error of every product rather than of the sum.
      const double terms = static_cast<double>(9 * shape[3]);
      expect_close(y, wanted.to_doubles(), tolerance(t, 8), (t == DType::BF16 ? 0x1p-8 : 1e-5) * std::sqrt(terms),
                   "upsample_conv2d of " + shape.str());
    }
}

// More unfolded rows than are made at a time: 192² positions of 9 · 256 values are 340 MB.
TEST_F(CudaKernelsTest, Conv2dInSeveralChunks) {
  const Tensor x = random({1, 192, 192, 256}, DType::F32), w = random({2, 3, 3, 256}, DType::F32, 0.1),
               y = blank({1, 192, 192, 2}, DType::F32);
  kernels().conv2d({x, w, nullptr, y, {1, 1, 1}});
  const Values xs = x.to_doubles(), ws = w.to_doubles(), ys = y.to_doubles();
  for (const auto& [i, j] : {std::pair<int64_t, int64_t>{0, 0}, {95, 7}, {144, 100}, {151, 191}, {191, 191}}) {
    double s = 0;
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t q = 0; q < 3; ++q) {
        const int64_t row = i - 1 + r, column = j - 1 + q;
        if (row < 0 || row >= 192 || column < 0 || column >= 192) continue;
        for (int64_t k = 0; k < 256; ++k) s += xs[at((row * 192 + column) * 256 + k)] * ws[at(((3 + r) * 3 + q) * 256 + k)];
      }
    EXPECT_NEAR(ys[at((i * 192 + j) * 2 + 1)], s, 1e-3) << i << "," << j;
  }
}

TEST_F(CudaKernelsTest, NothingToDoIsFine) {
  for (DType t : kTypes) {
    const Tensor x = Tensor::empty(*stream, t, {0, 8}), y = Tensor::empty(*stream, t, {0, 8}), w = random({8, 8}, t);
    y.copy_from(x);
    kernels().unary({Unary::Silu, x, y});
    kernels().layer_norm({x, y, 1e-6f});
    kernels().linear({x, w, nullptr, y});
    EXPECT_NO_THROW(stream->wait()) << name_of(t);  // a launch of no blocks would fail here
    EXPECT_TRUE(y.to_floats().empty());
  }
}

}  // namespace

}  // namespace flux2
