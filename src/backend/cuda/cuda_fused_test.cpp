#include <array>

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels/parts.h"

// Kernels that do several ops at once against those ops one after the other.
namespace flux2 {

namespace {

class CudaFusedTest : public CudaTest {};

// The tail of a wider tensor, as the joint result of a block is.
Tensor tail(const Tensor& wide, int64_t columns) { return wide.narrowed(-1, wide.dim(-1) - columns, columns); }

TEST_F(CudaFusedTest, SwigluProduct) {
  struct Case {
    int64_t rows, inner, hidden;
  };
  // Whole tiles, parts of tiles on every side, several bands of rows, fewer rows than a warpgroup has.
  for (const auto& [rows, inner, hidden] :
       {Case{256, 128, 256}, {1, 8, 8}, {77, 72, 200}, {300, 64, 136}, {9000, 1544, 264}, {1000, 3080, 392}}) {
    const std::string what = fmt::format("{}x{}x{}", rows, inner, hidden);
    const Tensor x = random({rows, inner}, DType::BF16), w = random({2 * hidden, inner}, DType::BF16, 1.0 / std::sqrt(inner));
    const Tensor wide = blank({rows, hidden + 64}, DType::BF16), y = tail(wide, hidden);
    const cuda::SwigluProductArgs args{x, w, y};
    if (!cuda::swiglu_product_fits(args)) GTEST_SKIP() << "no such kernel for this GPU";
    cuda::swiglu_product(args);

    const Tensor x32 = x.cast(DType::F32), u = Tensor::like(x32, {rows, 2 * hidden}), z = Tensor::like(x32, {rows, hidden});
    kernels().linear({x32, w.cast(DType::F32), nullptr, u});
    kernels().swiglu({u.narrowed(1, 0, hidden), u.narrowed(1, hidden, hidden), z});
    expect_close(y, z.to_doubles(), tolerance(DType::BF16, static_cast<double>(inner)), 2e-5, what);
    for (double v : wide.narrowed(1, 0, 64).to_doubles()) ASSERT_EQ(v, 12352.0) << what << ": written outside";
  }
}

TEST_F(CudaFusedTest, SwigluProductGivesTheSameBytes) {
  const Tensor x = random({4000, 512}, DType::BF16), w = random({2 * 1024, 512}, DType::BF16, 0.05);
  std::array<std::vector<float>, 2> results;
  for (auto& result : results) {
    const Tensor y = blank({4000, 1024}, DType::BF16);
    const cuda::SwigluProductArgs args{x, w, y};
    if (!cuda::swiglu_product_fits(args)) GTEST_SKIP() << "no such kernel for this GPU";
    cuda::swiglu_product(args);
    result = y.to_floats();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(CudaFusedTest, GatedAddNormIsItsTwoSteps) {
  for (DType t : {DType::F32, DType::BF16})
    for (const Shape& shape : {Shape{2, 5, 3072}, {1, 2000, 3072}, {1, 1100, 4096}, {3, 4, 24}, {1, 3, 21}, {1, 2, 20000}}) {
      const Shape vector = shape.with(1, 1);
      const Tensor x = random(shape, t), z = random(shape, t), gate = random(vector, t), shift = random(vector, t),
                   scale = random(vector, t);
      const Tensor sum = blank(shape, t), y = blank(shape, t), wanted_sum = blank(shape, t), wanted = blank(shape, t);
      kernels().gated_add_norm({x, gate, z, shift, scale, sum, y, 1e-6f});
      kernels().gated_add({x, gate, z, wanted_sum});
      kernels().modulated_norm({wanted_sum, shift, scale, wanted, 1e-6f});
      const std::string what = fmt::format("{} {}", name_of(t), shape);
      EXPECT_EQ(sum.to_floats(), wanted_sum.to_floats()) << what;
      // Sums in another order may round to the other neighbour: a whole unit in the last place.
      expect_close(y, wanted.to_doubles(), 2 * tolerance(t, 100), 1e-4, what);
    }
}

}  // namespace

}  // namespace flux2
