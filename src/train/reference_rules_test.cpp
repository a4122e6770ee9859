// Reference tokens with a conditioning vector of their own (zero_cond_t) that see only each other (kv_references): gradients
// against differences in double precision, and the same velocity as generation with kept keys.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "autograd/grad.h"
#include "engine/backends.h"
#include "engine/engine.h"
#include "ops/arithmetic.h"
#include "pipeline/latents.h"

namespace flux2 {
namespace {

constexpr int64_t kText = 3, kBatch = 2;

struct ReferenceToy {
  explicit ReferenceToy(const std::string& device = "cpu", DType dtype = DType::F64)
      : engine({.device = device, .threads = 2, .profile = dtype == DType::BF16 ? Profile::Fast : Profile::Exact}),
        type(dtype),
        stream(engine.device().open_stream()) {
    config.hidden = 256;
    config.double_blocks = config.single_blocks = 2;
    config.text_width = 384;
    config.guidance = false;
    network.emplace(config);
    uint64_t next = 1;
    network->visit([&](const Parameter& p) {
      const double scale = p.kind == ParameterKind::Vector ? 1.0 : 1.5 / std::sqrt(static_cast<double>(p.shape[-1]));
      p.tensor = parameter(random(p.shape, next++, scale, p.kind == ParameterKind::Vector ? 1.0 : 0.0));
    });
    x = parameter(random({kBatch, kTarget + kReferences, 128}, 1001));
    txt = parameter(random({kBatch, kText, config.hidden}, 1002));
    vec = parameter(random({kBatch, config.hidden}, 1003));
    reference_vec = parameter(random({kBatch, config.hidden}, 1004));
    auto positions = text_positions(kText);
    for (const auto& more : {picture_positions(2, 3), picture_positions(2, 2, 10)})
      positions.insert(positions.end(), more.begin(), more.end());
    rope = flux2_rope(*stream, positions);
  }

  Tensor random(const Shape& shape, uint64_t seed, double scale = 1, double shift = 0) const {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (double& v : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = shift + scale * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
    }
    if (type == DType::F64) return Tensor::from<double>(*stream, type, shape, values);
    const std::vector<float> rounded(values.begin(), values.end());
    return Tensor::from<float>(*stream, type, shape, rounded);
  }

  struct Rule {
    bool apart = false, checkpoint = false;
  };
  Tensor velocity(const Rule& rule) const {
    return (*network)({.x = x,
                       .vec = vec,
                       .txt = txt,
                       .rope = rope,
                       .keep = kTarget,
                       .reference_vec = reference_vec,
                       .references_apart = rule.apart,
                       .checkpoint_blocks = rule.checkpoint,
                       .taps = {}});
  }
  double loss(const Rule& rule) const {
    const auto v = velocity(rule).to_doubles(), w = weights().to_doubles();
    return std::inner_product(v.begin(), v.end(), w.begin(), 0.0);
  }
  Tensor weights() const { return random({kBatch, kTarget, 128}, 1005); }

  static constexpr int64_t kTarget = 6, kReferences = 4;
  Engine engine;
  DType type;
  std::shared_ptr<Stream> stream;
  Flux2Config config;
  std::optional<Flux2Transformer> network;
  Tensor x, txt, vec, reference_vec;
  Rope rope;
};

TEST(ReferenceRules, GradientsMatchDifferences) {
  ReferenceToy toy;
  for (const bool apart : {false, true}) {
    const ReferenceToy::Rule rule{apart, false};
    const Gradients gradients = backward(std::vector<Tensor>{toy.velocity(rule)}, std::vector<Tensor>{toy.weights()});
    const auto compare = [&](const std::string& name, const Tensor& leaf) {
      ASSERT_TRUE(gradients.contains(leaf)) << name;
      const std::vector<double> g = gradients[leaf].to_doubles();
      double largest = 0;
      for (const double v : g) largest = std::max(largest, std::abs(v));
      ASSERT_GT(largest, 0) << name;
      auto* values = leaf.data<double>();
      for (const size_t i : {g.size() / 3, g.size() - 1}) {
        const double kept = values[i], h = 1e-5;
        values[i] = kept + h;
        const double up = toy.loss(rule);
        values[i] = kept - h;
        const double down = toy.loss(rule);
        values[i] = kept;
        EXPECT_NEAR(g[i], (up - down) / (2 * h), 1e-6 * largest) << name << " " << i << (apart ? ", apart" : "");
      }
    };
    compare("x", toy.x);
    compare("txt", toy.txt);
    compare("vec", toy.vec);
    compare("reference_vec", toy.reference_vec);
    toy.network->visit([&](const Parameter& p) {
      if (p.name.starts_with("double_blocks.0") || p.name.starts_with("single_blocks.0") ||
          p.name.find("modulation") != p.name.npos)
        compare(p.name, p.tensor);
    });
  }
}

TEST(ReferenceRules, CheckpointingGivesTheSameBits) {
  ReferenceToy toy;
  for (const bool apart : {false, true}) {
    const auto gradients_with = [&](bool checkpoint) {
      return backward(std::vector<Tensor>{toy.velocity({apart, checkpoint})}, std::vector<Tensor>{toy.weights()});
    };
    const Gradients plain = gradients_with(false), again = gradients_with(true);
    EXPECT_EQ(toy.velocity({apart, false}).to_doubles(), toy.velocity({apart, true}).to_doubles());
    toy.network->visit([&](const Parameter& p) {
      if (!plain.contains(p.tensor)) return;
      EXPECT_EQ(plain[p.tensor].to_doubles(), again[p.tensor].to_doubles()) << p.name;
    });
    EXPECT_EQ(plain[toy.x].to_doubles(), again[toy.x].to_doubles());
    EXPECT_EQ(plain[toy.reference_vec].to_doubles(), again[toy.reference_vec].to_doubles());
  }
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

TEST(ReferenceRules, TheSameTimeForAllTokensIsTheUsualModel) {
  ReferenceToy toy;
  toy.reference_vec = toy.vec;
  const Tensor usual =
      (*toy.network)({.x = toy.x, .vec = toy.vec, .txt = toy.txt, .rope = toy.rope, .keep = ReferenceToy::kTarget, .taps = {}});
  expect_near(toy.velocity({}), usual, 1e-12);
}

TEST(ReferenceRules, KvReferencesAreWhatGenerationWithKeptKeysComputes) {
  ReferenceToy toy;
  const auto narrowed = [](const Rope& rope, int64_t first, int64_t count) {
    return Rope{rope.cosine.narrowed(0, first, count), rope.sine.narrowed(0, first, count), rope.pairs};
  };
  constexpr int64_t target = ReferenceToy::kTarget, references = ReferenceToy::kReferences;
  const Rope main = narrowed(toy.rope, 0, kText + target);
  const ReferenceKeys keys =
      toy.network->reference_keys(toy.x.narrowed(1, target, references).contiguous(), toy.reference_vec.detached(),
                                  narrowed(toy.rope, kText + target, references));
  const Tensor kept = (*toy.network)({.x = toy.x.narrowed(1, 0, target).contiguous(),
                                      .vec = toy.vec.detached(),
                                      .txt = toy.txt.detached(),
                                      .rope = main,
                                      .references = &keys,
                                      .taps = {}});
  expect_near(toy.velocity({.apart = true}), kept, 1e-12);
  double difference = 0;
  const auto a = toy.velocity({.apart = true}).to_doubles(), b = toy.velocity({}).to_doubles();
  for (size_t i = 0; i < a.size(); ++i) difference = std::max(difference, std::abs(a[i] - b[i]));
  EXPECT_GT(difference, 1e-3);  // the two rules do differ
}

// The same gradients on a GPU, in f32 and in bf16.
TEST(ReferenceRules, GradientsOnAGpuMatchTheHost) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  const ReferenceToy host;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const ReferenceToy gpu("cuda", dtype);
    for (const bool apart : {false, true}) {
      const auto gradients_of = [&](const ReferenceToy& toy) {
        return backward(std::vector<Tensor>{toy.velocity({apart, true})}, std::vector<Tensor>{toy.weights()});
      };
      const Gradients expected = gradients_of(host), got = gradients_of(gpu);
      const auto compare = [&](const char* name, const Tensor& a, const Tensor& b) {
        ASSERT_TRUE(got.contains(b)) << name;
        const auto x = expected[a].to_doubles(), y = got[b].to_doubles();
        double xx = 0, yy = 0, xy = 0;
        for (size_t i = 0; i < x.size(); ++i) xx += x[i] * x[i], yy += y[i] * y[i], xy += x[i] * y[i];
        EXPECT_GT(xy / std::sqrt(xx * yy), dtype == DType::F32 ? 1 - 1e-6 : 0.99) << name << (apart ? ", apart" : "");
        EXPECT_NEAR(std::sqrt(yy / xx), 1, dtype == DType::F32 ? 1e-3 : 5e-2) << name << (apart ? ", apart" : "");
      };
      compare("x", host.x, gpu.x);
      compare("txt", host.txt, gpu.txt);
      compare("vec", host.vec, gpu.vec);
      compare("reference_vec", host.reference_vec, gpu.reference_vec);
      compare("qkv", host.network->double_blocks[0].img.qkv.weight, gpu.network->double_blocks[0].img.qkv.weight);
      compare("linear1", host.network->single_blocks[0].in.weight, gpu.network->single_blocks[0].in.weight);
    }
  }
}

}  // namespace
}  // namespace flux2
