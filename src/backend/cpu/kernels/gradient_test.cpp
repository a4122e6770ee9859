#include <functional>

#include "backend/cpu/kernels/kernel_test.h"

namespace flux2::cpu {
namespace {

// Every gradient kernel in f64 against central differences of its forward kernel.
class GradientTest : public KernelTest {
 protected:
  Tensor f64(const Shape& shape) { return random(shape, DType::F64); }

  // d (Σ dy · y) / dx for every element of x, where `forward` computes y from what x holds.
  void expect_gradient(const Tensor& x, const Tensor& y, const Tensor& dy, const std::function<void()>& forward,
                       const Tensor& dx) {
    std::vector<double> expected;
    const std::vector<double> weights = dy.to_doubles();
    const auto loss = [&] {
      forward();
      double sum = 0;
      const std::vector<double> values = y.to_doubles();
      for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
      return sum;
    };
    for (int64_t i = 0; i < x.numel(); ++i) {
      double& v = x.data<double>()[i];
      const double kept = v, step = 1e-5;
      v = kept + step;
      const double above = loss();
      v = kept - step;
      expected.push_back((above - loss()) / (2 * step));
      v = kept;
    }
    forward();
    expect_close(dx, expected, 1e-7);
  }
};

FLUX2_KERNEL_LEVELS(GradientTest);

TEST_P(GradientTest, Elementwise) {
  const Tensor x = f64({3, 5}), y = Tensor::like(x), dy = f64({3, 5}), dx = Tensor::like(x);
  for (Unary op : {Unary::Silu, Unary::Exp, Unary::Abs, Unary::Square}) {
    kernels.unary_grad({op, x, dy, dx});
    expect_gradient(
        x, y, dy,
        [&] {
          kernels.unary({op, x, y});
        },
        dx);
  }
  const Tensor up = f64({3, 5}), dup = Tensor::like(x);
  kernels.swiglu_grad({x, up, dy, dx, dup});
  expect_gradient(
      x, y, dy,
      [&] {
        kernels.swiglu({x, up, y});
      },
      dx);
  expect_gradient(
      up, y, dy,
      [&] {
        kernels.swiglu({x, up, y});
      },
      dup);
}

TEST_P(GradientTest, Norms) {
  const Tensor x = f64({2, 3, 8}), y = Tensor::like(x), dy = f64({2, 3, 8}), dx = Tensor::like(x);
  kernels.layer_norm_grad({x, dy, dx, 1e-6f});
  expect_gradient(
      x, y, dy,
      [&] {
        kernels.layer_norm({x, y, 1e-6f});
      },
      dx);

  const Tensor weight = f64({8}), bias = f64({8}), dweight = Tensor::like(weight), dbias = Tensor::like(bias);
  kernels.rms_norm_grad({x, weight, dy, &dx, &dweight, 1e-6f});
  expect_gradient(
      x, y, dy,
      [&] {
        kernels.rms_norm({x, weight, y, 1e-6f});
      },
      dx);
  expect_gradient(
      weight, y, dy,
      [&] {
        kernels.rms_norm({x, weight, y, 1e-6f});
      },
      dweight);
  const std::vector<double> both_x = dx.to_doubles(), both_weight = dweight.to_doubles();
  dx.fill(0.0);
  dweight.fill(0.0);
  kernels.rms_norm_grad({x, weight, dy, &dx, nullptr, 1e-6f});
  kernels.rms_norm_grad({x, weight, dy, nullptr, &dweight, 1e-6f});
  EXPECT_EQ(dx.to_doubles(), both_x);
  EXPECT_EQ(dweight.to_doubles(), both_weight);

  kernels.group_norm_grad({x, weight, dy, dx, dweight, dbias, 2, 1e-6f});
  const auto group = [&] { kernels.group_norm({x, weight, bias, y, 2, 1e-6f, false}); };
  expect_gradient(x, y, dy, group, dx);
  expect_gradient(weight, y, dy, group, dweight);
  expect_gradient(bias, y, dy, group, dbias);
}

TEST_P(GradientTest, Linear) {
  const Tensor x = f64({4, 6}), w = f64({5, 6}), y = zeros({4, 5}, DType::F64), dy = f64({4, 5});
  const Tensor dx = Tensor::like(x), dw = Tensor::like(w);
  kernels.linear_grad_input({dy, w, dx});
  kernels.linear_grad_weight({dy, x, dw});
  const auto forward = [&] { kernels.linear({x, w, nullptr, y}); };
  expect_gradient(x, y, dy, forward, dx);
  expect_gradient(w, y, dy, forward, dw);
}

TEST_P(GradientTest, Attention) {
  for (bool causal : {false, true}) {
    const Tensor q = f64({2, 4, 4, 3}), k = f64({2, 4, 2, 3}), v = f64({2, 4, 2, 3});
    const Tensor y = Tensor::like(q), dy = f64({2, 4, 4, 3});
    const Tensor log_sum = zeros({2, 4, 4}, DType::F64), mask = ints({2, 4}, {0, 1, 1, 0, 1, 1, 0, 1});
    const Tensor dq = Tensor::like(q), dk = Tensor::like(k), dv = Tensor::like(v);
    const auto forward = [&] { kernels.attention({q, k, v, y, &mask, &log_sum, 0.7f, causal}); };
    forward();
    kernels.attention_grad({q, k, v, y, log_sum, dy, dq, dk, dv, &mask, 0.7f, causal});
    expect_gradient(q, y, dy, forward, dq);
    expect_gradient(k, y, dy, forward, dk);
    expect_gradient(v, y, dy, forward, dv);
  }
}

// F32 gradients against those in F64: several blocks of queries, grouped heads, strided tensors, rows that see no key.
TEST_P(GradientTest, AttentionInF32) {
  struct Case {
    int64_t queries, keys, heads, groups, width;
    bool causal, masked;
  };
  for (const Case& c :
       {Case{1, 1, 1, 1, 4, false, false}, Case{300, 70, 4, 2, 24, false, true}, Case{530, 530, 2, 2, 16, true, false},
        Case{40, 40, 4, 1, 20, true, true}, Case{40, 75, 4, 2, 20, true, true}}) {
    std::vector<int32_t> seen(static_cast<size_t>(2 * c.keys));
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = (i * 7) % 5 < 3 && i % static_cast<size_t>(c.keys) > 2;
    const Tensor mask = ints({2, c.keys}, seen);
    const Shape wide_q{2, c.queries, c.heads + 1, c.width}, wide_k{2, c.keys, c.groups + 1, c.width};
    const Tensor wide[] = {random(wide_q), random(wide_k), random(wide_k), random(wide_q)};
    const auto run = [&](DType dtype) {
      const auto view = [&](const Tensor& t) { return t.cast(dtype).narrowed(2, 1, t.dim(2) - 1); };
      const auto result = [&](const Shape& shape) { return zeros(shape, dtype).narrowed(2, 0, shape[2] - 1); };
      const Tensor q = view(wide[0]), k = view(wide[1]), v = view(wide[2]), dy = view(wide[3]);
      const Tensor y = zeros(q.shape(), dtype), log_sum = zeros({2, c.heads, c.queries}, dtype);
      const Tensor* masked = c.masked ? &mask : nullptr;
      kernels.attention({q, k, v, y, masked, &log_sum, 0.3f, c.causal});
      std::vector<Tensor> d = {result(wide_q), result(wide_k), result(wide_k)};
      kernels.attention_grad({q, k, v, y, log_sum, dy, d[0], d[1], d[2], masked, 0.3f, c.causal});
      return d;
    };
    const std::vector<Tensor> precise = run(DType::F64), single = run(DType::F32);
    for (size_t i = 0; i < single.size(); ++i) expect_close(single[i], precise[i].to_doubles(), 4 * tolerance(DType::F32));
  }
}

TEST_P(GradientTest, Conv2d) {
  for (const ConvShape conv : {ConvShape{1, 1, 1}, ConvShape{2, 0, 0}, ConvShape{2, 1, 0}}) {
    const int64_t h = conv.stride == 1 ? 4 : 2, w = conv.stride == 1 ? 5 : 2;
    const Tensor x = f64({2, 4, 5, 3}), weight = f64({2, 3, 3, 3});
    const Tensor y = zeros({2, h, w, 2}, DType::F64), dy = f64(y.shape());
    const Tensor dx = Tensor::like(x), dw = Tensor::like(weight);
    kernels.conv2d_grad_input({dy, weight, dx, conv});
    kernels.conv2d_grad_weight({dy, x, dw, conv});
    const auto forward = [&] { kernels.conv2d({x, weight, nullptr, y, conv}); };
    expect_gradient(x, y, dy, forward, dx);
    expect_gradient(weight, y, dy, forward, dw);
  }
}

TEST_P(GradientTest, UpsampleRopeAndEmbedding) {
  const Tensor x = f64({1, 2, 3, 2}), y = zeros({1, 4, 6, 2}, DType::F64), dy = f64(y.shape()), dx = Tensor::like(x);
  kernels.upsample_grad({dy, dx});
  expect_gradient(
      x, y, dy,
      [&] {
        kernels.upsample({x, y});
      },
      dx);

  const Tensor r = f64({1, 2, 2, 4}), ry = Tensor::like(r), rdy = f64(r.shape()), rdx = Tensor::like(r);
  const Tensor cosine = random({2, 2}), sine = random({2, 2});
  for (bool interleaved : {false, true}) {
    kernels.rope({rdy, cosine, sine, rdx, interleaved, true});
    expect_gradient(
        r, ry, rdy,
        [&] {
          kernels.rope({r, cosine, sine, ry, interleaved, false});
        },
        rdx);
  }

  const Tensor table = f64({4, 3}), ids = ints({5}, {1, 3, 1, 0, 1}), ey = zeros({5, 3}, DType::F64), edy = f64({5, 3});
  const Tensor dtable = zeros({4, 3}, DType::F64);
  kernels.embedding_grad({ids, edy, dtable});
  expect_gradient(
      table, ey, edy,
      [&] {
        kernels.embedding({ids, table, ey});
      },
      dtable);
}

}  // namespace
}  // namespace flux2::cpu
