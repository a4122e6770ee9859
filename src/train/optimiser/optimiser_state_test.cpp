// What must hold for every optimiser: saved state, threads, rounding, single steps.
#include <gmock/gmock.h>

#include "base/counted_random.h"
#include "base/error.h"
#include "tensor/optimiser_rules.h"
#include "train/optimiser/optimiser_test.h"

namespace flux2 {

namespace {

void run_steps(Optimiser& optimiser, const OptimiserBench& bench, int first, int last) {
  for (int k = first; k <= last; ++k) optimiser.step(bench.gradients(k), k == 1 ? 0.0 : 1.0, 0.9);
}

TEST(OptimiserState, ARestoredRunHasTheSameBits) {
  for (const OptimiserCase& test : optimiser_cases())
    for (const DType dtype : {DType::F32, DType::BF16}) {
      OptimiserBench whole(2, dtype), resumed(2, dtype);
      const auto unbroken = make_optimiser(test.type, test.args, whole.groups(test.rate), 7);
      run_steps(*unbroken, whole, 1, 9);

      std::vector<std::pair<std::string, Tensor>> saved;
      Json numbers;
      {
        const auto first = make_optimiser(test.type, test.args, resumed.groups(test.rate), 7);
        run_steps(*first, resumed, 1, 4);
        for (const auto& [name, tensor] : first->slots()) {  // through host memory, as a file would
          const Tensor copy = Tensor::host_empty(tensor.dtype(), tensor.shape());
          resumed.stream->download(copy.raw(), tensor.raw(), static_cast<size_t>(tensor.bytes()));
          saved.emplace_back(name, copy);
        }
        numbers = parse_json(first->scalars().dump());
      }
      const auto second = make_optimiser(test.type, test.args, resumed.groups(test.rate), 7);
      second->load_slots(saved);
      second->load_scalars(numbers);
      EXPECT_EQ(second->steps_done(), 4);
      run_steps(*second, resumed, 5, 9);
      EXPECT_EQ(resumed.floats(), whole.floats()) << test.type << " " << name_of(dtype);
      EXPECT_EQ(second->scalars(), unbroken->scalars()) << test.type;
      EXPECT_EQ(second->effective_rates(), unbroken->effective_rates()) << test.type;
    }
}

TEST(OptimiserState, SlotsAreNamedAfterTheirParameters) {
  OptimiserBench bench;
  const auto names = [&](const char* type) {
    std::vector<std::string> out;
    for (const auto& [name, tensor] : make_optimiser(type, {}, bench.groups(1e-3))->slots())
      if (name.starts_with("t0/") || name.starts_with("t2/")) out.push_back(name);
    return out;
  };
  using testing::ElementsAre;
  EXPECT_THAT(names("adamw"), ElementsAre("t0/m", "t0/v", "t2/m", "t2/v"));
  EXPECT_THAT(names("adamw8bit"), ElementsAre("t0/m", "t0/v", "t2/state1", "t2/state2", "t2/absmax1", "t2/absmax2"));
  EXPECT_THAT(names("prodigy"), ElementsAre("t0/m", "t0/v", "t0/s", "t0/p0", "t2/m", "t2/v", "t2/s", "t2/p0"));
  EXPECT_THAT(names("adafactor"), ElementsAre("t0/v", "t2/row", "t2/col"));
  EXPECT_THAT(names("sgd"), ElementsAre());
}

TEST(OptimiserState, WrongStateIsAnErrorThatNamesIt) {
  OptimiserBench bench;
  const auto optimiser = make_optimiser("adamw", {}, bench.groups(1e-3));
  const auto failure = [&](const std::vector<std::pair<std::string, Tensor>>& slots) {
    try {
      optimiser->load_slots(slots);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::BadFile);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(failure({}), testing::HasSubstr("t0/m"));
  auto slots = optimiser->slots();
  slots[1].second = Tensor::empty(*bench.stream, DType::F32, {8});
  EXPECT_THAT(failure(slots), testing::HasSubstr("t0/v"));
  EXPECT_THROW(optimiser->load_scalars(Json{{"step", -3}}), Error);
  EXPECT_THROW(optimiser->load_scalars(Json::object()), Error);
  EXPECT_THROW(make_optimiser("adamwschedulefree", {}, bench.groups(1e-3))->load_scalars(Json{{"step", 3}}), Error);
}

TEST(OptimiserState, WrongArgumentsAreErrors) {
  EXPECT_NO_THROW(make_optimiser("adamw", {"fused=True"}, {}));
  for (const auto& [type, arg] : {std::pair{"adamw", "betas=(0.9,)"},
                                  {"adamw", "weight_decy=0.1"},
                                  {"adamw", "eps=-1"},
                                  {"adamw", "amsgrad=True"},
                                  {"lion", "betas=(0.9,1.0)"},
                                  {"prodigy", "d0=0"},
                                  {"adamwschedulefree", "betas=(0,0.9)"},
                                  {"sgd", "nesterov=True"},
                                  {"adamw", "min_8bit_size=1"}})
    EXPECT_THROW(make_optimiser(type, {arg}, {}), Error) << type << " " << arg;
  OptimiserBench bench;
  EXPECT_THROW(make_optimiser("prodigy", {}, bench.groups(1.0, 4.0)), Error);
}

TEST(OptimiserState, ThreadsDoNotChangeABit) {
  for (const OptimiserCase& test : optimiser_cases()) {
    std::vector<std::vector<std::vector<float>>> results;
    for (const int threads : {1, 2, 5}) {
      OptimiserBench bench(threads);
      const auto optimiser = make_optimiser(test.type, test.args, bench.groups(test.rate));
      run_steps(*optimiser, bench, 1, 4);
      results.push_back(bench.floats());
    }
    EXPECT_EQ(results[0], results[1]) << test.type;
    EXPECT_EQ(results[0], results[2]) << test.type;
  }
}

TEST(OptimiserState, TensorByTensorIsTheSameStep) {
  for (const OptimiserCase& test : optimiser_cases()) {
    OptimiserBench together(2, DType::BF16, DType::BF16), apart(2, DType::BF16, DType::BF16);
    const auto a = make_optimiser(test.type, test.args, together.groups(test.rate), 3);
    const auto b = make_optimiser(test.type, test.args, apart.groups(test.rate), 3);
    if (!b->steps_one_by_one()) {
      EXPECT_STREQ(test.type, "prodigy");
      continue;
    }
    for (int k = 1; k <= 4; ++k) {
      a->step(together.gradients(k), 0.5, 0.3);
      b->begin_step(0.5);
      const auto gradients = apart.gradients(k);
      for (size_t i = gradients.size(); i-- > 0;) b->step_one(i, gradients[i], 0.3);
    }
    EXPECT_EQ(together.floats(), apart.floats()) << test.type;
  }
}

TEST(OptimiserState, ATensorWithoutGradientStays) {
  for (const OptimiserCase& test : optimiser_cases()) {
    OptimiserBench bench;
    const auto before = bench.floats();
    const auto optimiser = make_optimiser(test.type, test.args, bench.groups(test.rate));
    auto gradients = bench.gradients(1);
    gradients[1] = Tensor();
    optimiser->step(gradients, 1.0, 1.0);
    EXPECT_EQ(bench.floats()[1], before[1]) << test.type;
    EXPECT_NE(bench.floats()[2], before[2]) << test.type;
  }
}

TEST(OptimiserState, AFirstStepWithoutLearningRateCounts) {
  OptimiserBench bench;
  const auto before = bench.floats();
  const auto optimiser = make_optimiser("adamw", {}, bench.groups(1e-3));
  optimiser->step(bench.gradients(1), 0.0, 1.0);
  EXPECT_EQ(bench.floats(), before);
  EXPECT_EQ(optimiser->steps_done(), 1);
  EXPECT_NE(optimiser->slots()[0].second.to_floats()[0], 0.0f);
}

TEST(OptimiserState, EightBitStateIgnoresGradientsThatAreNotFinite) {
  OptimiserBench bench;
  const auto optimiser = make_optimiser("adamw8bit", {}, bench.groups(1e-3));
  optimiser->step(bench.gradients(1), 1.0, 1.0);
  const auto before = bench.floats();
  auto gradients = bench.gradients(2);
  gradients[2].data<float>()[5] = std::nanf("");
  gradients[2].data<float>()[6] = INFINITY;
  optimiser->step(gradients, 1.0, 1.0);
  const auto after = bench.floats();
  EXPECT_EQ(after[2][5], before[2][5]);
  EXPECT_EQ(after[2][6], before[2][6]);
  EXPECT_NE(after[2][7], before[2][7]);
  for (const float v : after[2]) ASSERT_TRUE(std::isfinite(v));
}

TEST(OptimiserState, ProdigyGrowsAndLogsItsRate) {
  OptimiserBench bench;
  const auto optimiser = make_optimiser("prodigy", {}, bench.groups(1.0));
  optimiser->step(bench.gradients(1), 1.0, 1.0);
  EXPECT_NEAR(optimiser->effective_rates()[0], 1e-6, 1e-12);
  for (int k = 2; k <= 40; ++k) optimiser->step(bench.gradients(k), 1.0, 1.0);
  EXPECT_GT(optimiser->effective_rates()[1], 1e-5);
}

TEST(OptimiserState, EvaluationWeightsGoAndComeBack) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    OptimiserBench bench(2, dtype);
    const auto optimiser = make_optimiser("adamwschedulefree", {}, bench.groups(1e-2));
    run_steps(*optimiser, bench, 1, 8);
    const auto y = bench.floats();
    const std::vector<float> z = optimiser->slots()[2 * 2].second.to_floats();
    optimiser->evaluation_weights();
    optimiser->evaluation_weights();  // again: no effect
    const auto x = bench.floats();
    for (size_t e = 0; e < z.size(); ++e)
      ASSERT_NEAR(x[2][e], y[2][e] + (1 - 1 / 0.9) * (z[e] - y[2][e]), dtype == DType::F32 ? 1e-6 : 0.02);
    EXPECT_THROW(optimiser->step(bench.gradients(9), 1.0, 1.0), Error);
    optimiser->training_weights();
    EXPECT_EQ(bench.floats(), y);
    optimiser->training_weights();
    EXPECT_EQ(bench.floats(), y);
  }
}

TEST(OptimiserState, GradientNorm) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    OptimiserBench bench(2, DType::F32, dtype);
    auto gradients = bench.gradients(1);
    double squares = 0;
    for (const Tensor& g : gradients)
      for (const double v : g.to_doubles()) squares += v * v;
    gradients.push_back(Tensor());
    EXPECT_NEAR(gradient_norm(gradients), std::sqrt(squares), 1e-12 * std::sqrt(squares));
  }
  EXPECT_EQ(gradient_norm({}), 0.0);
}

TEST(StochasticRounding, UsesTheNumbersOfItsTensorAndStep) {
  for (const uint32_t tensor : {0u, 3u, 70000u})
    for (const uint32_t block : {0u, 9u}) {
      const auto expected = CountedRandom(0x123456789abcull, 11 + 256 * tensor, 17).words(block);
      const RandomWords actual = rounding_words(0x123456789abcull, tensor, 17, block);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], expected[i]);
    }
}

TEST(StochasticRounding, IsUnbiased) {
  // A BF16 parameter of 1 has steps of 2⁻⁷ above it. Updates of a tenth of a step must arrive on average.
  OptimiserBench bench;
  const int64_t n = 20000;
  const Tensor p = Tensor::empty(*bench.stream, DType::BF16, {n});
  p.fill(1.0);
  const Tensor g = Tensor::empty(*bench.stream, DType::F32, {n});
  g.fill(-1.0);
  const auto optimiser = make_optimiser("sgd", {}, {{"all", 0x1p-7 / 10, {{"p", p}}}}, 99);
  for (int k = 0; k < 5; ++k) optimiser->step(std::vector<Tensor>{g}, 1.0, 1.0);
  double sum = 0, raised = 0;
  for (const double v : p.to_doubles()) sum += v, raised += v > 1;
  // The deviation of the mean of n values, each a sum of 5 draws with p = 0.1.
  const double deviation = 0x1p-7 * std::sqrt(5 * 0.1 * 0.9 / static_cast<double>(n));
  EXPECT_NEAR(sum / static_cast<double>(n), 1.0 + 0.5 * 0x1p-7, 4 * deviation);
  EXPECT_NEAR(raised / static_cast<double>(n), 1 - std::pow(0.9, 5), 0.02);
}

TEST(StochasticRounding, KeepsWhatIsNotFinite) {
  EXPECT_EQ(stochastic_bf16(INFINITY, 0xffffffffu), 0x7f80);
  EXPECT_EQ(stochastic_bf16(-INFINITY, 0xffffffffu), 0xff80);
  EXPECT_TRUE(std::isnan(to_float(bf16{stochastic_bf16(std::nanf(""), 0xffffffffu)})));
  EXPECT_EQ(stochastic_bf16(1.5f, 0xffffffffu), to_bf16(1.5f).bits);
  EXPECT_EQ(stochastic_bf16(-0.0f, 0xffffffffu), 0x8000);
}

}  // namespace

}  // namespace flux2
