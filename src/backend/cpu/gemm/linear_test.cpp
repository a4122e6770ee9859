#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

Tensor stored_weight(Stream& stream, DType dtype, int64_t n, int64_t k) {
  if (is_block_type(dtype)) return block_weight(dtype, n, k);
  if (dtype == DType::F8_E4M3 || dtype == DType::I8) {
    std::vector<uint8_t> bytes(static_cast<size_t>(n * k));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 37) % 120 | (i % 2 ? 0x80 : 0));
    return Tensor::host_copy(bytes.data(), dtype, {n, k});
  }
  return noise(stream, dtype, {n, k}, 11);
}

// The activations as the product of m rows with w sees them.
std::vector<float> operand(const TestCpu& s, const Tensor& x, const Tensor& w, int64_t m) {
  if (s.dots(w.dtype(), m)) return rounded_for_dots(x.to_floats(), x.dim(1));
  if (s.quantises(w.dtype(), m)) return rounded_to_int8(x.to_floats(), x.dim(1));
  return s.rounds(w.dtype(), m) ? rounded_to_bf16(x.to_floats()) : x.to_floats();
}

// And the weights, whose scales stay out of the rounding.
std::vector<float> weights(const TestCpu& s, const Tensor& w, int64_t m) {
  if (is_block_type(w.dtype()) && s.quantises(w.dtype(), m)) return block_values(w);
  const auto values = w.on_host_only() ? weight_values(w) : w.to_floats();
  return s.rounds(w.dtype(), m) && !w.scales().defined() ? rounded_to_bf16(values) : values;
}

// y, x and the rest in double, from what the tensors really hold.
void expect_linear(const TestCpu& s, const Tensor& x, const Tensor& w, const Tensor* bias, const std::string& what) {
  const int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  const Tensor y = Tensor::like(x, {m, n});
  s.device->kernels().linear({x, w, bias, y});
  const auto xs = operand(s, x, w, m), ws = weights(s, w, m);
  const auto ys = y.to_floats(), bs = bias ? bias->to_floats() : std::vector<float>(static_cast<size_t>(n));
  const double stored = x.dtype() == DType::F32 ? 0 : x.dtype() == DType::BF16 ? 0x1p-8 : 0x1p-11;
  // A kernel for blocks may round each of them to a step of its integers; x reaches 1, so a step is scale / 127.
  const bool steps = is_block_type(w.dtype()) && s.quantises(w.dtype(), m);
  const double rounded = steps ? largest_block_scale(w.dtype()) / 127 * std::sqrt(static_cast<double>(k / 32)) : 0;
  Agreement agreement;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      Sum sum;
      for (int64_t l = 0; l < k; ++l) sum.add(xs[static_cast<size_t>(i * k + l)], ws[static_cast<size_t>(j * k + l)]);
      sum.add(bs[static_cast<size_t>(j)], 1);
      agreement.see(ys[static_cast<size_t>(i * n + j)], sum.value,
                    sum.tolerance() + rounded + stored * (std::abs(sum.value) + 1e-6), fmt::format("[{}, {}]", i, j));
    }
  agreement.expect(what);
}

TEST(GemmLinear, EveryWeightDtype) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F8_E4M3, DType::I8, DType::Q8_0, DType::Q4_0, DType::Q5_1,
                        DType::Q4_K, DType::Q6_K, DType::IQ4_XS})
      for (int64_t m : {1, 3, 4, 5, 19}) {
        const int64_t k = info(dtype).block_elements == 256 ? 1792 : 1568;
        const Tensor x = noise(*s.stream, DType::F32, {m, k}, 1), bias = noise(*s.stream, DType::F32, {45}, 2);
        expect_linear(s, x, stored_weight(*s.stream, dtype, 45, k), &bias,
                      fmt::format("{} rows, {} weights, {}", m, name_of(dtype), profile == Profile::Fast ? "fast" : "exact"));
      }
  }
}

// One scale for the weight or one for each of its rows, on every table.
TEST(GemmLinear, ScaledWeights) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (DType dtype : {DType::I8, DType::F8_E4M3})
      for (int64_t count : {1, 45})
        for (int64_t m : {1, 4, 5, 6, 9, 19})
          for (int64_t k : {1, 37, 1571}) {
            const Tensor x = noise(*s.stream, DType::F32, {m, k}, 1), bias = noise(*s.stream, DType::F32, {45}, 2);
            const Tensor w = stored_weight(*s.stream, dtype, 45, k).with_scales(noise(*s.stream, DType::F32, {count}, 3));
            expect_linear(s, x, w, &bias, fmt::format("{} x {}, {} scales, {}", m, k, count, name_of(dtype)));
          }
  }
}

TEST(GemmLinear, ScaledWeightsOnTheScalarTable) {
  const auto device = open_cpu({.threads = 2, .scalar_only = true});
  const auto stream = device->open_stream();
  for (int64_t count : {1, 45}) {
    const Tensor x = noise(*stream, DType::F32, {7, 37}, 1), y = Tensor::like(x, {7, 45}), dx = Tensor::like(x);
    const Tensor w = stored_weight(*stream, DType::I8, 45, 37).with_scales(noise(*stream, DType::F32, {count}, 3));
    const Tensor plain = Tensor::from<float>(*stream, DType::F32, {45, 37}, weight_values(w)), y_plain = Tensor::like(y);
    device->kernels().linear({x, w, nullptr, y});
    device->kernels().linear({x, plain, nullptr, y_plain});
    const Tensor dy = noise(*stream, DType::F32, {7, 45}, 4), dx_plain = Tensor::like(x);
    device->kernels().linear_grad_input({dy, w, dx});
    device->kernels().linear_grad_input({dy, plain, dx_plain});
    for (const auto& [got, want] : {std::pair{y, y_plain}, {dx, dx_plain}}) {
      const auto a = got.to_floats(), b = want.to_floats();
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * 127 * 45) << i;
    }
  }
}

// A NaN among the activations shows in its row and in no other.
TEST(GemmLinear, QuantisedActivationsPropagateNaN) {
  const TestCpu s(Profile::Fast);
  for (DType dtype : {DType::I8, DType::Q8_0}) {
    auto values = noise(9 * 64, 1);
    values[3 * 64 + 17] = NAN;
    const Tensor x = Tensor::from<float>(*s.stream, DType::F32, {9, 64}, values), y = Tensor::like(x, {9, 5});
    s.device->kernels().linear({x, stored_weight(*s.stream, dtype, 5, 64), nullptr, y});
    const auto ys = y.to_floats();
    for (size_t i = 0; i < ys.size(); ++i) EXPECT_EQ(std::isnan(ys[i]), i / 5 == 3) << i;
  }
}

TEST(GemmLinear, ActivationsOf16Bits) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (DType dtype : {DType::BF16, DType::F16})
      for (int64_t m : {2, 23}) {
        const Tensor x = noise(*s.stream, dtype, {m, 131}, 1), bias = noise(*s.stream, dtype, {37}, 2);
        expect_linear(s, x, stored_weight(*s.stream, DType::BF16, 37, 131), &bias,
                      fmt::format("{} rows of {}", m, name_of(dtype)));
      }
  }
}

TEST(GemmLinear, RowsOfAWiderTensor) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (int64_t m : {3, 21}) {
      const Tensor x = noise(*s.stream, DType::F32, {m, 200}, 1).narrowed(1, 37, 101);
      const Tensor w = noise(*s.stream, DType::BF16, {50, 300}, 2).narrowed(1, 64, 101);
      expect_linear(s, x, w, nullptr, "views");

      // Into a view: what lies beside it stays.
      const Tensor wide = Tensor::empty(*s.stream, DType::F32, {m, 60});
      wide.fill(7);
      s.device->kernels().linear({x, w, nullptr, wide.narrowed(1, 5, 50)});
      const Tensor y = Tensor::like(x, {m, 50});
      s.device->kernels().linear({x, w, nullptr, y});
      const auto got = wide.to_floats(), want = y.to_floats();
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < 60; ++j)
          EXPECT_EQ(got[static_cast<size_t>(i * 60 + j)], j < 5 || j >= 55 ? 7.0f : want[static_cast<size_t>(i * 50 + j - 5)]);
    }
  }
}

TEST(GemmLinear, ExactRowsDoNotDependOnTheirBatch) {
  const TestCpu s(Profile::Exact), alone(Profile::Exact, 1);
  const Tensor x = noise(*s.stream, DType::F32, {70, 900}, 1), w = noise(*s.stream, DType::BF16, {130, 900}, 2);
  const Tensor y = Tensor::like(x, {70, 130});
  s.device->kernels().linear({x, w, nullptr, y});
  for (int64_t row : {0, 1, 33, 69}) {
    const Tensor one = Tensor::empty(*alone.stream, DType::F32, {1, 130});
    alone.device->kernels().linear({x.narrowed(0, row, 1), w, nullptr, one});
    EXPECT_EQ(one.to_floats(), y.narrowed(0, row, 1).to_floats()) << row;
  }
}

TEST(GemmLinear, GradientsAreTheTransposedProducts) {
  const int64_t m = 27, n = 35, k = 96;
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    const Tensor dy = noise(*s.stream, DType::F32, {m, n}, 1), x = noise(*s.stream, DType::F32, {m, k}, 2);
    for (DType dtype : {DType::F32, DType::BF16, DType::Q8_0, DType::I8}) {
      Tensor w = stored_weight(*s.stream, dtype, n, k);
      const Tensor dx = Tensor::like(x);
      std::vector<float> scales(static_cast<size_t>(n), 1.0f);
      if (dtype == DType::I8) w = w.with_scales(Tensor::from<float>(*s.stream, DType::F32, {n}, scales = noise(n, 5)));
      s.device->kernels().linear_grad_input({dy, w, dx});
      auto dys = dy.to_floats(), ws = w.on_host_only() ? weight_values(w.with_scales({})) : w.to_floats();
      for (size_t i = 0; i < dys.size(); ++i) dys[i] *= scales[i % scales.size()];
      if (s.rounds() && dtype != DType::F32) dys = rounded_to_bf16(dys), ws = rounded_to_bf16(ws);
      const auto got = dx.to_floats();
      Agreement agreement;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t l = 0; l < k; ++l) {
          Sum sum;
          for (int64_t j = 0; j < n; ++j) sum.add(dys[static_cast<size_t>(i * n + j)], ws[static_cast<size_t>(j * k + l)]);
          agreement.see(got[static_cast<size_t>(i * k + l)], sum.value, sum.tolerance(), fmt::format("dx[{}, {}]", i, l));
        }
      agreement.expect(name_of(dtype));
    }
    const Tensor dw = Tensor::like(x, {n, k});
    s.device->kernels().linear_grad_weight({dy, x, dw});
    const auto dys = dy.to_floats(), xs = x.to_floats(), got = dw.to_floats();
    Agreement agreement;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) {
        Sum sum;
        for (int64_t i = 0; i < m; ++i) sum.add(dys[static_cast<size_t>(i * n + j)], xs[static_cast<size_t>(i * k + l)]);
        agreement.see(got[static_cast<size_t>(j * k + l)], sum.value, sum.tolerance(), fmt::format("dw[{}, {}]", j, l));
      }
    agreement.expect("dw");
  }
}

TEST(GemmLinear, DoublesStayDoubles) {
  const TestCpu s(Profile::Fast);
  const std::vector<double> ones(300, 1.0 + 1e-12);
  const Tensor x = Tensor::from<double>(*s.stream, DType::F64, {3, 100}, ones), y = Tensor::like(x, {3, 3});
  s.device->kernels().linear({x, x, nullptr, y});
  for (double v : y.to_doubles()) EXPECT_NEAR(v, 100 + 2e-10, 1e-12);
}

}  // namespace
}  // namespace flux2::gemm
