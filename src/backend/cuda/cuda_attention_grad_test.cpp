#include "backend/cuda/cuda_test.h"

// Attention's gradient in BF16, through cuDNN where it is, against the same in F32, which is a chain of products.
namespace flux2 {

namespace {

struct Case {
  int64_t batch, queries, keys, heads, width;
};

class CudaAttentionGradTest : public CudaTest {
 protected:
  struct Result {
    Tensor dq, dk, dv;
  };

  // dv lies inside a wider tensor, as it does where q, k and v come out of one product.
  Result gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy) {
    const Tensor y = blank(q.shape(), q.dtype()), log_sum = blank({q.dim(0), q.dim(2), q.dim(1)}, DType::F32);
    const float scale = 1.0f / std::sqrt(static_cast<float>(q.dim(3)));
    kernels().attention({q, k, v, y, nullptr, &log_sum, scale, false});
    const Tensor wide = blank({v.dim(0), v.dim(1), 3 * v.dim(2), v.dim(3)}, v.dtype());
    const Result r{blank(q.shape(), q.dtype()), blank(k.shape(), k.dtype()), wide.narrowed(2, v.dim(2), v.dim(2))};
    kernels().attention_grad({q, k, v, y, log_sum, dy, r.dq, r.dk, r.dv, nullptr, scale, false});
    return r;
  }
};

double relative(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  double off = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    off += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(off / norm);
}

TEST_F(CudaAttentionGradTest, HalfPrecisionAgreesWithSingle) {
  for (const Case& c :
       {Case{1, 256, 256, 4, 128}, Case{2, 300, 180, 3, 64}, Case{1, 1000, 1000, 24, 128}, Case{1, 37, 70, 2, 40}}) {
    const auto heads = [&](int64_t length) { return random({c.batch, length, c.heads, c.width}, DType::BF16); };
    const Tensor q = heads(c.queries), k = heads(c.keys), v = heads(c.keys), dy = heads(c.queries);
    const auto single = [](const Tensor& t) { return t.cast(DType::F32); };
    const Result half = gradients(q, k, v, dy), exact = gradients(single(q), single(k), single(v), single(dy));
    const std::string what = fmt::format("{} queries {} keys {} heads of {}", c.queries, c.keys, c.heads, c.width);
    EXPECT_LE(relative(half.dq, exact.dq), 1e-2) << what;
    EXPECT_LE(relative(half.dk, exact.dk), 1e-2) << what;
    EXPECT_LE(relative(half.dv, exact.dv), 1e-2) << what;
    const Result again = gradients(q, k, v, dy);
    EXPECT_EQ(again.dq.to_floats(), half.dq.to_floats()) << what;
    EXPECT_EQ(again.dk.to_floats(), half.dk.to_floats()) << what;
    EXPECT_EQ(again.dv.to_floats(), half.dv.to_floats()) << what;
  }
}

// A text encoder's attention: causal, with a mask, and heads that share keys. Many items are computed at once.
TEST_F(CudaAttentionGradTest, EachItemOfABatchIsAsIfAlone) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const int64_t batch = 37, length = 29, heads = 4, width = 24;
    const Tensor q = random({batch, length, heads, width}, dtype), dy = random(q.shape(), dtype);
    const Tensor k = random({batch, length, heads / 2, width}, dtype), v = random(k.shape(), dtype);
    std::vector<int32_t> seen(static_cast<size_t>(batch * length), 1);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = length - b % 11; i < length; ++i) seen[static_cast<size_t>(b * length + i)] = 0;
    const Tensor mask = ints({batch, length}, seen);
    const auto run = [&](int64_t first, int64_t count) {
      const auto part = [&](const Tensor& t) { return t.narrowed(0, first, count); };
      const Tensor y = blank({count, length, heads, width}, dtype), log_sum = blank({count, heads, length}, DType::F32);
      const Tensor visible = part(mask);
      kernels().attention({part(q), part(k), part(v), y, &visible, &log_sum, 0.2f, true});
      const Shape shared{count, length, heads / 2, width};
      const Result r{blank(y.shape(), dtype), blank(shared, dtype), blank(shared, dtype)};
      kernels().attention_grad({part(q), part(k), part(v), y, log_sum, part(dy), r.dq, r.dk, r.dv, &visible, 0.2f, true});
      return r;
    };
    const Result all = run(0, batch);
    for (const int64_t b : {int64_t{0}, int64_t{10}, batch - 1}) {
      const Result one = run(b, 1);
      const double limit = dtype == DType::F32 ? 1e-6 : 4e-3;
      EXPECT_LE(relative(all.dq.narrowed(0, b, 1).cloned(), one.dq), limit) << b;
      EXPECT_LE(relative(all.dk.narrowed(0, b, 1).cloned(), one.dk), limit) << b;
      EXPECT_LE(relative(all.dv.narrowed(0, b, 1).cloned(), one.dv), limit) << b;
    }
  }
}

// At a real size the parts of dq are added in any order.
TEST_F(CudaAttentionGradTest, LongSequencesAgreeWithOneHeadInFixedOrder) {
  const Tensor q = random({1, 4608, 24, 128}, DType::BF16), k = random(q.shape(), DType::BF16),
               v = random(q.shape(), DType::BF16), dy = random(q.shape(), DType::BF16);
  const Result all = gradients(q, k, v, dy);
  const auto one = [](const Tensor& t) { return t.narrowed(2, 17, 1).cloned(); };
  const Result alone = gradients(one(q), one(k), one(v), one(dy));
  EXPECT_LE(relative(one(all.dq), alone.dq), 4e-3);
  EXPECT_LE(relative(one(all.dk), alone.dk), 4e-3);
  EXPECT_LE(relative(one(all.dv), alone.dv), 4e-3);
}

}  // namespace

}  // namespace flux2
