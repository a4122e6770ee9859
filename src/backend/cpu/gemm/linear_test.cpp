#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/test_values.h"

namespace flux2::gemm {
namespace {

Tensor stored_weight(Stream& stream, DType dtype, int64_t n, int64_t k) {
  if (dtype == DType::Q8_0) {
    std::vector<BlockQ8_0> blocks(static_cast<size_t>(n * k / 32));
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i].scale = to_f16(0.001f * static_cast<float>(i % 7 + 1));
      for (int j = 0; j < 32; ++j) blocks[i].q[j] = static_cast<int8_t>((i * 31 + static_cast<size_t>(j) * 77) % 255);
    }
    return Tensor::host_copy(blocks.data(), dtype, {n, k});
  }
  if (dtype == DType::Q4_0) {
    std::vector<BlockQ4_0> blocks(static_cast<size_t>(n * k / 32));
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i].scale = to_f16(0.01f * static_cast<float>(i % 5 + 1));
      for (int j = 0; j < 16; ++j) blocks[i].q[j] = static_cast<uint8_t>(i * 13 + static_cast<size_t>(j) * 59);
    }
    return Tensor::host_copy(blocks.data(), dtype, {n, k});
  }
  if (dtype == DType::F8_E4M3) {
    std::vector<uint8_t> bytes(static_cast<size_t>(n * k));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 37) % 120 | (i % 2 ? 0x80 : 0));
    return Tensor::host_copy(bytes.data(), dtype, {n, k});
  }
  return noise(stream, dtype, {n, k}, 11);
}

// What a weight holds; block types are contiguous here.
std::vector<float> values_of(const Tensor& w) {
  if (!w.on_host_only()) return w.to_floats();
  std::vector<float> values(static_cast<size_t>(w.numel()));
  convert(w.dtype(), w.raw(), 0, w.numel(), values.data());
  return values;
}

// y, x and the rest in double, from what the tensors really hold.
void expect_linear(const TestCpu& s, const Tensor& x, const Tensor& w, const Tensor* bias, const std::string& what) {
  const int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  const Tensor y = Tensor::like(x, {m, n});
  s.device->kernels().linear({x, w, bias, y});
  auto xs = x.to_floats(), ws = values_of(w);
  const auto ys = y.to_floats(), bs = bias ? bias->to_floats() : std::vector<float>(static_cast<size_t>(n));
  if (s.rounds(w.dtype(), m)) xs = rounded_to_bf16(xs), ws = rounded_to_bf16(ws);
  const double stored = x.dtype() == DType::F32 ? 0 : x.dtype() == DType::BF16 ? 0x1p-8 : 0x1p-11;
  Agreement agreement;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      Sum sum;
      for (int64_t l = 0; l < k; ++l) sum.add(xs[static_cast<size_t>(i * k + l)], ws[static_cast<size_t>(j * k + l)]);
      sum.add(bs[static_cast<size_t>(j)], 1);
      agreement.see(ys[static_cast<size_t>(i * n + j)], sum.value, sum.tolerance() + stored * std::abs(sum.value) + stored * 1e-6,
                    fmt::format("[{}, {}]", i, j));
    }
  agreement.expect(what);
}

TEST(GemmLinear, EveryWeightDtype) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F8_E4M3, DType::Q8_0, DType::Q4_0})
      for (int64_t m : {1, 3, 4, 5, 19}) {
        const Tensor x = noise(*s.stream, DType::F32, {m, 1568}, 1), bias = noise(*s.stream, DType::F32, {45}, 2);
        expect_linear(s, x, stored_weight(*s.stream, dtype, 45, 1568), &bias,
                      fmt::format("{} rows, {} weights, {}", m, name_of(dtype), profile == Profile::Fast ? "fast" : "exact"));
      }
  }
}

TEST(GemmLinear, ActivationsOf16Bits) {
  for (Profile profile : {Profile::Exact, Profile::Fast}) {
    const TestCpu s(profile);
    for (DType dtype : {DType::BF16, DType::F16})
      for (int64_t m : {2, 23}) {
        const Tensor x = noise(*s.stream, dtype, {m, 131}, 1), bias = noise(*s.stream, dtype, {37}, 2);
        expect_linear(s, x, stored_weight(*s.stream, DType::BF16, 37, 131), &bias, fmt::format("{} rows of {}", m, name_of(dtype)));
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
    for (DType dtype : {DType::F32, DType::BF16, DType::Q8_0}) {
      const Tensor w = stored_weight(*s.stream, dtype, n, k), dx = Tensor::like(x);
      s.device->kernels().linear_grad_input({dy, w, dx});
      auto dys = dy.to_floats(), ws = values_of(w);
      if (s.rounds(dtype, m)) dys = rounded_to_bf16(dys), ws = rounded_to_bf16(ws);
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
