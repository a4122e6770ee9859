#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "backend/cuda/cuda_test.h"
#include "tensor/optimiser_kernels.h"

// Every rule of the optimiser on the GPU against the same call on the CPU.
namespace flux2 {

namespace {

// A tensor in the state of a run, once on each device.
struct Twin {
  Tensor cpu, gpu;
};

class CudaOptimiserTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    cpu_ = open_cpu({});
    cpu_stream_ = cpu_->open_stream();
    std::vector<float> with_sign(256), without_sign(256);  // any ascending books with a zero at 127 and at 0
    for (int i = 0; i < 256; ++i) {
      with_sign[at(i)] = static_cast<float>(i < 127 ? (i - 127) / 127.0 : (i - 127) / 128.0);
      without_sign[at(i)] = static_cast<float>(i * i) / (255.0f * 255.0f);
    }
    with_sign_ = twin({256}, with_sign);
    without_sign_ = twin({256}, without_sign);
  }

  Twin twin(const Shape& shape, const std::vector<float>& values, DType dtype = DType::F32) {
    const std::span<const float> all(values);
    return {Tensor::from<float>(*cpu_stream_, dtype, shape, all), Tensor::from<float>(*stream, dtype, shape, all)};
  }
  Twin normals(const Shape& shape, double spread, DType dtype = DType::F32, bool positive = false) {
    std::normal_distribution<double> normal(0.0, spread);
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& v : values) v = static_cast<float>(positive ? std::abs(normal(generator)) + 1e-6 : normal(generator));
    return twin(shape, values, dtype);
  }
  Twin codes(const Shape& shape) {
    std::vector<uint8_t> values(static_cast<size_t>(shape.numel()));
    for (uint8_t& v : values) v = static_cast<uint8_t>(generator() % 256);
    Twin t{Tensor::empty(*cpu_stream_, DType::U8, shape), Tensor::empty(*stream, DType::U8, shape)};
    cpu_stream_->upload(t.cpu.raw(), values.data(), values.size());
    stream->upload(t.gpu.raw(), values.data(), values.size());
    return t;
  }

  struct Trained {
    Twin p, g;
    std::vector<std::pair<int, Twin>> states;
    OptimiserTensor entry;
  };

  Trained trained(OptimiserRule rule, const Shape& shape, DType p_dtype, DType g_dtype, uint32_t index) {
    using R = OptimiserRule;
    Trained t{normals(shape, 1, p_dtype), normals(shape, 0.1, g_dtype), {}, {}};
    const int64_t n = shape.numel(), blocks = (n + kCodeBlock - 1) / kCodeBlock;
    const auto state = [&](int place, const Shape& s, bool positive) {
      t.states.emplace_back(place, normals(s, 0.05, DType::F32, positive));
    };
    t.entry.count = n;
    t.entry.index = index;
    t.entry.factored = shape.rank() >= 2;
    t.entry.rows = t.entry.factored ? shape[-2] : 1;
    t.entry.columns = t.entry.factored ? shape[-1] : n;
    t.entry.p_is_bf16 = p_dtype == DType::BF16;
    t.entry.g_is_bf16 = g_dtype == DType::BF16;
    t.entry.rate = 1e-2f, t.entry.keep = 0.999f, t.entry.fade = 0.003f, t.entry.decay = 0.01f, t.entry.mix = 0.3f,
    t.entry.z_rate = 2e-2f;
    switch (rule) {
      case R::AdamW8bit:
      case R::Lion8bit:
      case R::AdEmaMix8bit: {
        const int states = rule == R::AdamW8bit ? 2 : rule == R::Lion8bit ? 1 : 3;
        for (int k = 0; k < states; ++k) t.states.emplace_back(k, codes(shape));
        for (int k = 0; k < states; ++k) state(states + k, {blocks}, true);
        break;
      }
      case R::Adafactor:
      case R::Came:
        if (t.entry.factored) {
          const Shape rows = shape.first(shape.rank() - 1), columns = shape.first(shape.rank() - 2).append(shape[-1]);
          state(0, rows, true), state(1, columns, true), state(3, rows, true), state(4, columns, true);
        } else {
          state(0, shape, true);
        }
        state(2, shape, false);
        break;
      case R::ProdigySums: state(2, {(n + 2) / 3}, false), state(3, {(n + 2) / 3}, false); [[fallthrough]];
      default:
        state(0, shape, false), state(1, shape, true);
        if (rule != R::ProdigySums) state(2, shape, false);
    }
    return t;
  }

  std::vector<double> run(OptimiserRule rule, std::vector<Trained>& tensors, bool on_gpu) {
    std::vector<OptimiserTensor> entries;
    for (Trained& t : tensors) {
      OptimiserTensor e = t.entry;
      e.p = (on_gpu ? t.p.gpu : t.p.cpu).raw();
      e.g = (on_gpu ? t.g.gpu : t.g.cpu).raw();
      for (const auto& [place, s] : t.states) e.state[place] = (on_gpu ? s.gpu : s.cpu).raw();
      entries.push_back(e);
    }
    Stream& where = on_gpu ? *stream : *cpu_stream_;
    const Tensor sums = Tensor::empty(where, DType::F64, {2});
    RuleNumbers k;
    k.gradient_scale = 0.7f;
    k.beta1 = 0.9f, k.rest1 = 0.1f, k.beta2 = 0.99f, k.rest2 = 0.01f, k.beta3 = 0.95f, k.rest3 = 0.05f;
    k.bias1 = 0.5f, k.root_bias2 = 0.4f, k.eps = 1e-8f, k.eps2 = 1e-3f, k.alpha = 2, k.s_rate = 0.3f, k.slice = 3;
    k.momentum = true, k.scale_parameter = true;
    where.device().kernels().optimise({.rule = rule,
                                       .numbers = k,
                                       .tensors = entries,
                                       .stream = where,
                                       .signed_codes = (on_gpu ? with_sign_.gpu : with_sign_.cpu).data<float>(),
                                       .unsigned_codes = (on_gpu ? without_sign_.gpu : without_sign_.cpu).data<float>(),
                                       .sums = sums.data<double>(),
                                       .seed = 42,
                                       .step = 7});
    return sums.to_doubles();
  }

  std::shared_ptr<Device> cpu_;
  std::shared_ptr<Stream> cpu_stream_;
  Twin with_sign_, without_sign_;
};

TEST_F(CudaOptimiserTest, RulesAreThoseOfTheCpu) {
  using R = OptimiserRule;
  for (const R rule :
       {R::AdamW, R::Lion, R::Sgd, R::SgdMomentum, R::AdEmaMix, R::ScheduleFree, R::Interpolate, R::ProdigySums, R::ProdigyUpdate,
        R::AdamWDecayLast, R::AdamW8bit, R::Lion8bit, R::AdEmaMix8bit, R::Adafactor, R::Came, R::SquaredGradients}) {
    std::vector<Trained> tensors;
    uint32_t index = 0;
    for (const DType p : {DType::F32, DType::BF16})
      for (const DType g : {DType::F32, DType::BF16})
        for (const Shape& shape : {Shape{17}, {5000}, {1, 300}, {200, 3}, {130, 515}, {2, 3, 70, 33}})
          tensors.push_back(trained(rule, shape, p, g, index++));
    for (int step = 0; step < 2; ++step) {
      const std::vector<double> cpu = run(rule, tensors, false), gpu = run(rule, tensors, true);
      const std::string what = fmt::format("rule {}, step {}", static_cast<int>(rule), step);
      if (rule == R::ProdigySums || rule == R::SquaredGradients) {
        EXPECT_NEAR(gpu[0], cpu[0], 1e-9 * (1 + std::abs(cpu[0]))) << what;
        EXPECT_NEAR(gpu[1], cpu[1], 1e-9 * (1 + std::abs(cpu[1]))) << what;
      }
      // Sums in another order may end in a neighbouring number, in 8 bits in a neighbouring code.
      for (Trained& t : tensors) {
        const bool bf16 = t.entry.p_is_bf16;
        expect_close(t.p.gpu, t.p.cpu.to_doubles(), bf16 ? 0x1p-7 : 4e-6, 1e-7, what + " parameter");
        for (const auto& [place, s] : t.states) {
          const bool code = s.gpu.dtype() == DType::U8;
          expect_close(s.gpu, s.cpu.to_doubles(), code ? 0 : 4e-6, code ? 1 : 1e-7, what + fmt::format(" state {}", place));
        }
      }
    }
  }
}

TEST_F(CudaOptimiserTest, ElementwiseRulesHaveTheBitsOfTheCpu) {
  std::vector<Trained> tensors;
  tensors.push_back(trained(OptimiserRule::AdamW, {70, 900}, DType::BF16, DType::BF16, 3));
  tensors.push_back(trained(OptimiserRule::AdamW, {70, 900}, DType::F32, DType::F32, 4));
  for (const bool on_gpu : {false, true}) run(OptimiserRule::AdamW, tensors, on_gpu);
  for (const Trained& t : tensors) EXPECT_EQ(t.p.gpu.to_floats(), t.p.cpu.to_floats());
}

TEST_F(CudaOptimiserTest, GivesTheSameBytesAgain) {
  const auto states_after = [&] {
    generator.seed(5);
    std::vector<Trained> tensors;
    tensors.push_back(trained(OptimiserRule::Came, {300, 257}, DType::F32, DType::F32, 0));
    run(OptimiserRule::Came, tensors, true);
    return tensors[0].p.gpu.to_floats();
  };
  EXPECT_EQ(states_after(), states_after());
}

}  // namespace

}  // namespace flux2
