#include <array>
#include <functional>

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

TEST_F(CudaFusedTest, AdapterGradientIsItsTwoProducts) {
  struct Case {
    int64_t rows, columns, rank;
  };
  // Whole strips and tiles, parts of both, fewer rows than a tile has, more strips than multiprocessors, every rank.
  for (const auto& [rows, columns, rank] : {Case{256, 1024, 32},
                                            {64, 8, 16},
                                            {1, 512, 64},
                                            {77, 1000, 32},
                                            {700, 5000, 64},
                                            {1333, 2056, 16},
                                            {1030, 3072, 32},
                                            {70, 140000, 32},
                                            {4200, 520, 64}}) {
    const std::string what = fmt::format("{}x{}, rank {}", rows, columns, rank);
    const Tensor dy = tail(random({rows, columns + 16}, DType::BF16), columns);
    const Tensor inner = random({rows, rank}, DType::BF16, 1.0 / std::sqrt(rows));
    const Tensor up = random({columns, rank}, DType::BF16, 1.0 / std::sqrt(columns));
    const Tensor d32 = dy.cast(DType::F32), wanted_du = blank({rows, rank}, DType::F32),
                 wanted = blank({columns, rank}, DType::F32);
    kernels().linear_grad_input({d32, up.cast(DType::F32), wanted_du});
    kernels().linear_grad_weight({d32, inner.cast(DType::F32), wanted});
    for (double factor : {1.0, -0.75})
      for (DType t : {DType::F32, DType::BF16}) {
        const Tensor du = blank({rows, rank}, DType::BF16), dup = blank({columns, rank}, t);
        const AdapterGradArgs args{dy, inner, up, du, dup, factor};
        if (!cuda::adapter_gradient_fits(args)) GTEST_SKIP() << "no such kernel for this GPU";
        cuda::adapter_gradient(args);
        std::vector<double> scaled = wanted_du.to_doubles();
        for (double& v : scaled) v *= factor;
        expect_close(du, scaled, tolerance(DType::BF16, static_cast<double>(columns)), 1e-4, "du of " + what);
        expect_close(dup, wanted.to_doubles(), tolerance(t, static_cast<double>(rows)), 1e-4, "dup of " + what);
      }
  }
}

TEST_F(CudaFusedTest, AdapterGradientGivesTheSameBytes) {
  const Tensor dy = random({1000, 9216}, DType::BF16), inner = random({1000, 32}, DType::BF16),
               up = random({9216, 32}, DType::BF16);
  std::array<std::vector<float>, 2> results;
  for (auto& result : results) {
    const Tensor du = blank({1000, 32}, DType::BF16), dup = blank({9216, 32}, DType::F32);
    const AdapterGradArgs args{dy, inner, up, du, dup, 1.0};
    if (!cuda::adapter_gradient_fits(args)) GTEST_SKIP() << "no such kernel for this GPU";
    cuda::adapter_gradient(args);
    result = du.to_floats();
    const std::vector<float> more = dup.to_floats();
    result.insert(result.end(), more.begin(), more.end());
  }
  EXPECT_EQ(results[0], results[1]);
}

// The table's entry chooses between the kernel and the library's products.
TEST_F(CudaFusedTest, AdapterGradOfAnyShape) {
  struct Case {
    int64_t rows, columns, rank;
  };
  for (DType t : {DType::F32, DType::BF16})
    for (const auto& [rows, columns, rank] : {Case{5, 7, 3}, {300, 3072, 32}, {2100, 9216, 16}, {2100, 9216, 8}}) {
      const Tensor dy = random({rows, columns}, t), inner = random({rows, rank}, t, 1.0 / std::sqrt(rows)),
                   up = random({columns, rank}, t, 1.0 / std::sqrt(columns));
      const Tensor d32 = dy.cast(DType::F32), wanted_du = blank({rows, rank}, DType::F32),
                   wanted = blank({columns, rank}, DType::F32);
      kernels().linear_grad_input({d32, up.cast(DType::F32), wanted_du});
      kernels().linear_grad_weight({d32, inner.cast(DType::F32), wanted});
      const Tensor du = blank({rows, rank}, t), dup = blank({columns, rank}, DType::F32);
      kernels().adapter_grad({dy, inner, up, du, dup, 0.5});
      std::vector<double> scaled = wanted_du.to_doubles();
      for (double& v : scaled) v *= 0.5;
      const std::string what = fmt::format("{} {}x{}, rank {}", name_of(t), rows, columns, rank);
      expect_close(du, scaled, 2 * tolerance(t, static_cast<double>(columns)), 1e-4, "du of " + what);
      expect_close(dup, wanted.to_doubles(), tolerance(DType::F32, static_cast<double>(rows)), 1e-4, "dup of " + what);
    }
}

// Few and many rows, several slices, vectors and odd widths, strided rows.
TEST_F(CudaFusedTest, ModulationGradIsTheSumsOfItsSteps) {
  for (DType t : {DType::F32, DType::BF16})
    for (const Shape& shape : {Shape{3, 64, 256}, {700, 5, 24}, {1, 4608, 3072}, {2, 700, 520}, {2, 9, 21}, {1, 1, 8}}) {
      const Tensor dy = random(shape.with(1, shape[1] + 3), t).narrowed(1, 3, shape[1]);
      const Tensor x = tail(random(shape.with(2, shape[2] + 8), t), shape[2]), x32 = x.cast(DType::F32).contiguous();
      const Tensor d32 = dy.cast(DType::F32).contiguous(), normed = Tensor::like(x32), product = Tensor::like(x32);
      const Shape each = shape.with(1, 1);
      const auto sum_of = [&](const Tensor& values) {
        const Tensor sums = blank(each, DType::F32);
        kernels().sum({values, sums});
        return sums.to_doubles();
      };
      const double few = tolerance(t, static_cast<double>(shape[1])), small = 2e-5 * std::sqrt(static_cast<double>(shape[1]));
      const std::string what = fmt::format("{} {}", name_of(t), shape);
      const Tensor sums = blank(each, t), products = blank(each, t), alone = blank(each, t);
      kernels().modulation_grad({dy, x, &sums, products, true, 1e-6f});
      kernels().modulation_grad({dy, x, nullptr, alone, false, 0});
      expect_close(sums, sum_of(d32), few, small, "sums of " + what);
      kernels().layer_norm({x32, normed, 1e-6f});
      kernels().binary({Binary::Mul, d32, normed, product});
      expect_close(products, sum_of(product), few, small, "products with normed rows of " + what);
      kernels().binary({Binary::Mul, d32, x32, product});
      expect_close(alone, sum_of(product), few, small, "products of " + what);
    }
}

// A token of few heads shares a block with others, one of many heads has several blocks.
TEST_F(CudaFusedTest, NormRopeOfAnyNumberOfHeads) {
  for (DType t : {DType::F32, DType::BF16})
    for (int64_t heads : {1, 2, 3, 4, 16, 17, 24}) {
      const Shape shape{3, 37, heads, 128};
      const Tensor x = random(shape, t), dy = random(shape, t), weight = random({128}, t);
      const Tensor cosine = random({37, 64}, DType::F32), sine = random({37, 64}, DType::F32);
      for (const bool interleaved : {true, false}) {
        const std::string what = fmt::format("{} {} heads, interleaved {}", name_of(t), heads, interleaved);
        const Tensor y = blank(shape, t), dx = blank(shape, t);
        kernels().norm_rope({x, weight, nullptr, cosine, sine, y, 1e-6f, interleaved});
        kernels().norm_rope_grad({x, weight, cosine, sine, dy, dx, 1e-6f, interleaved});
        const Tensor x32 = x.cast(DType::F32), w32 = weight.cast(DType::F32), normed = Tensor::like(x32),
                     wanted = Tensor::like(x32);
        kernels().rms_norm({x32, w32, normed, 1e-6f});
        kernels().rope({normed, cosine, sine, wanted, interleaved, false});
        expect_close(y, wanted.to_doubles(), tolerance(t, 4), 2e-5, "norm_rope of " + what);
        kernels().rope({dy.cast(DType::F32), cosine, sine, normed, interleaved, true});
        kernels().rms_norm_grad({x32, w32, normed, &wanted, nullptr, 1e-6f});
        expect_close(dx, wanted.to_doubles(), tolerance(t, 4), 4e-5, "norm_rope_grad of " + what);
      }
    }
}

TEST_F(CudaFusedTest, ModulatedNormGradAddsASum) {
  for (DType t : {DType::F32, DType::BF16})
    for (const Shape& shape : {Shape{2, 5, 3072}, {1, 2000, 3072}, {3, 4, 24}, {1, 3, 21}, {1, 2, 20000}}) {
      const Tensor x = random(shape, t), dy = random(shape, t), scale = random(shape.with(1, 1), t);
      const Tensor sum = random(shape.with(1, shape[1] + 2), t).narrowed(1, 2, shape[1]);
      const Tensor alone = blank(shape, t), together = blank(shape, t);
      kernels().modulated_norm_grad({x, scale, dy, nullptr, alone, 1e-6f});
      kernels().modulated_norm_grad({x, scale, dy, &sum, together, 1e-6f});
      std::vector<double> wanted = alone.to_doubles();
      const std::vector<double> more = sum.to_doubles();
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += more[i];
      // `alone` is rounded, perhaps at a larger size than the sum.
      expect_close(together, wanted, 2 * tolerance(t, 100), t == DType::BF16 ? 0.05 : 1e-5,
                   fmt::format("{} {}", name_of(t), shape));
    }
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

// Where there are more rows than blocks, a block works on several, also of two batches. The same rows in calls too short for that
// give the same bytes.
TEST_F(CudaFusedTest, BlocksThatStayGiveTheSameRows) {
  constexpr int64_t kTokens = 900, kSome = 60, kHeads = 24, kWidth = 128, kColumns = kHeads * kWidth;
  const auto bf16 = [&](const Shape& s) { return random(s, DType::BF16); };
  const Shape shape{2, kTokens, kColumns}, vector{2, 1, kColumns}, heads{2, kTokens, kHeads, kWidth};
  const Tensor x = bf16(shape), z = bf16(shape), dy = bf16(shape), gate = bf16(vector), shift = bf16(vector),
               scale = bf16(vector), weight = bf16({kColumns}), head_weight = bf16({kWidth}), second = bf16({kWidth}),
               cosine = random({kTokens, kWidth / 2}, DType::F32), sine = random({kTokens, kWidth / 2}, DType::F32);
  struct Part {
    int64_t batch, batches, token, tokens;
    Tensor rows(const Tensor& t) const { return t.narrowed(0, batch, batches).narrowed(1, token, tokens); }
    Tensor of_batch(const Tensor& t) const { return t.narrowed(0, batch, batches); }
    Tensor of_tokens(const Tensor& t) const { return t.narrowed(0, token, tokens); }
  };
  using Op = std::function<void(const Part&, const Tensor& y)>;
  const auto in_heads = [&](const Tensor& t) { return t.reshaped(heads); };
  const Tensor sum = blank(shape, DType::BF16);
  const std::vector<std::pair<std::string, Op>> ops{
      {"rms_norm",
       [&](const Part& p, const Tensor& y) {
         kernels().rms_norm({p.rows(x), weight, p.rows(y), 1e-6f});
       }},
      {"modulated_norm",
       [&](const Part& p, const Tensor& y) {
         kernels().modulated_norm({p.rows(x), p.of_batch(shift), p.of_batch(scale), p.rows(y), 1e-6f});
       }},
      {"gated_add_norm",
       [&](const Part& p, const Tensor& y) {
         kernels().gated_add_norm(
             {p.rows(x), p.of_batch(gate), p.rows(z), p.of_batch(shift), p.of_batch(scale), p.rows(sum), p.rows(y), 1e-6f});
       }},
      {"modulated_norm_grad",
       [&](const Part& p, const Tensor& y) {
         const Tensor more = p.rows(z);
         kernels().modulated_norm_grad({p.rows(x), p.of_batch(scale), p.rows(dy), &more, p.rows(y), 1e-6f});
       }},
      {"norm_rope",
       [&](const Part& p, const Tensor& y) {
         kernels().norm_rope({p.rows(in_heads(x)), head_weight, &second, p.of_tokens(cosine), p.of_tokens(sine),
                              p.rows(in_heads(y)), 1e-6f, true});
       }},
      {"norm_rope_grad", [&](const Part& p, const Tensor& y) {
         kernels().norm_rope_grad({p.rows(in_heads(x)), head_weight, p.of_tokens(cosine), p.of_tokens(sine), p.rows(in_heads(dy)),
                                   p.rows(in_heads(y)), 1e-6f, true});
       }}};
  for (const auto& [name, op] : ops) {
    const Tensor whole = blank(shape, DType::BF16), in_parts = blank(shape, DType::BF16);
    op({0, 2, 0, kTokens}, whole);
    for (int64_t batch = 0; batch < 2; ++batch)
      for (int64_t token = 0; token < kTokens; token += kSome) op({batch, 1, token, kSome}, in_parts);
    EXPECT_EQ(whole.to_floats(), in_parts.to_floats()) << name;
  }
}

}  // namespace

}  // namespace flux2
