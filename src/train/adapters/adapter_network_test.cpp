#include "train/adapters/adapter_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "autograd/grad.h"
#include "engine/engine.h"
#include "model/adapters.h"
#include "model/block_layers.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

// A small model with random weights, computed exactly.
struct Tiny {
  Tiny() : engine({.device = "cpu", .threads = 2, .profile = Profile::Exact}) {
    session = engine.open_session(engine.random_model("tiny", {.text_encoder = false, .vae = false}));
    network = *session->models.transformer.get();
  }
  Tensor random(const Shape& shape, uint64_t seed, double scale = 1) const {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(scale * std::sin(0.37 * static_cast<double>(i * 7 + seed)));
    return Tensor::from(*session->stream, DType::F32, shape, std::span<const float>(values));
  }

  Engine engine;
  std::unique_ptr<ModelSession> session;
  Flux2Transformer network{Flux2Config{}};
};

AdapterOptions options_for(AdapterForm form, bool dora = false, bool rank_stabilised = false) {
  AdapterOptions o;
  o.form = form;
  o.dim = 4;
  o.alpha = 2;
  o.dora = dora;
  o.rank_stabilised = rank_stabilised;
  return o;
}

struct Kind {
  const char* name;
  AdapterForm form;
  bool dora;
  bool rank_stabilised = false;
};
class EveryAdapter : public testing::TestWithParam<Kind> {
 protected:
  Tiny tiny;
};

TEST_P(EveryAdapter, StartsWithoutAChange) {
  const auto layers = block_layers(tiny.network);
  std::vector<std::vector<float>> before;
  for (const auto& [path, layer] : layers) before.push_back((*layer)(tiny.random({2, 3, layer->in}, 1)).to_floats());
  const AdapterNetwork adapter(tiny.network, *tiny.session->stream,
                               options_for(GetParam().form, GetParam().dora, GetParam().rank_stabilised), 42);
  EXPECT_EQ(adapter.modules(), layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto after = (*layers[i].layer)(tiny.random({2, 3, layers[i].layer->in}, 1)).to_floats();
    for (size_t k = 0; k < after.size(); ++k)
      ASSERT_NEAR(after[k], before[i][k], 2e-6 * (1 + std::abs(before[i][k]))) << layers[i].path;
  }
}

// Compares the gradient of every trained value with a difference quotient, at values other than the initial ones.
TEST_P(EveryAdapter, GradientsMatchDifferences) {
  AdapterNetwork adapter(tiny.network, *tiny.session->stream,
                         options_for(GetParam().form, GetParam().dora, GetParam().rank_stabilised), 7);
  Linear& layer = *block_layers(tiny.network)[0].layer;
  std::map<std::string, Tensor> moved;
  uint64_t k = 0;
  for (const TrainedParameter& p : adapter.parameters())
    moved[p.name] = (p.leaf.detached() + tiny.random(p.leaf.shape(), ++k, 0.05)).contiguous();
  adapter.restore(moved);
  const Tensor x = tiny.random({1, 5, layer.in}, 3), probe = tiny.random({1, 5, layer.out}, 9);
  const auto loss = [&] { return sum(layer(x) * probe); };
  const Gradients gradients = backward(loss());
  const auto& parameters = adapter.parameters();
  int checked = 0;
  for (const TrainedParameter& p : parameters) {
    if (!gradients.contains(p.leaf)) continue;
    const std::vector<float> gradient = gradients[p.leaf].to_floats();
    float* values = p.leaf.data<float>();
    for (const size_t i : {size_t{0}, gradient.size() / 2, gradient.size() - 1}) {
      const float kept = values[i], step = 1e-2f;
      values[i] = kept + step;
      const double up = loss().to_doubles()[0];
      values[i] = kept - step;
      const double down = loss().to_doubles()[0];
      values[i] = kept;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 2e-2 * (0.1 + std::abs(gradient[i]))) << p.name << " " << i;
      ++checked;
    }
  }
  EXPECT_GE(checked, 6);
}

// The saved file changes the model exactly as training did; it is read like any other adapter.
TEST_P(EveryAdapter, SavedFileHasTheSameEffect) {
  AdapterNetwork adapter(tiny.network, *tiny.session->stream,
                         options_for(GetParam().form, GetParam().dora, GetParam().rank_stabilised), 7);
  std::map<std::string, Tensor> moved;
  uint64_t k = 0;
  for (const TrainedParameter& p : adapter.parameters())
    moved[p.name] = (p.leaf.detached() + tiny.random(p.leaf.shape(), ++k, 0.02)).contiguous();
  adapter.restore(moved);
  const auto file = std::filesystem::path(testing::TempDir()) / (std::string(GetParam().name) + "-saved.safetensors");
  save_tensors(file, adapter.tensors());
  const Adapter opened(read_adapter(file), tiny.network.config);
  ThreadPool threads(2);
  for (const auto& [path, layer] : block_layers(tiny.network)) {
    const Tensor x = tiny.random({1, 2, layer->in}, 5);
    const std::vector<float> trained = (*layer)(x).to_floats();
    const std::vector<float> weight = layer->weight.to_floats();
    const auto read_row = [&, in = layer->in](int64_t row, float* out) { std::copy_n(weight.data() + row * in, in, out); };
    const MergedRows merged(read_row, {layer->out, layer->in}, path + ".weight", {{std::make_shared<Adapter>(opened), 1.0, {}}});
    ASSERT_TRUE(merged.is_changed()) << path;
    std::vector<float> rows(weight.size());
    merged.rows(0, layer->out, rows.data(), threads);
    Linear plain(layer->in, layer->out);
    plain.weight = Tensor::from(*tiny.session->stream, DType::F32, {layer->out, layer->in}, std::span<const float>(rows));
    const std::vector<float> expected = plain(x).to_floats();
    double largest = 0;
    for (const float v : expected) largest = std::max(largest, double{std::abs(v)});
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(trained[i], expected[i], 3e-5 * largest) << path;
  }
}

TEST_P(EveryAdapter, ContinuesFromItsOwnFile) {
  const auto options = options_for(GetParam().form, GetParam().dora, GetParam().rank_stabilised);
  AdapterNetwork first(tiny.network, *tiny.session->stream, options, 7);
  const auto file = std::filesystem::path(testing::TempDir()) / (std::string(GetParam().name) + "-start.safetensors");
  save_tensors(file, first.tensors());
  Tiny other;
  AdapterNetwork second(other.network, *other.session->stream, options, 99);
  second.start_from(file, {});
  for (size_t i = 0; i < first.parameters().size(); ++i)
    EXPECT_EQ(second.parameters()[i].leaf.to_floats(), first.parameters()[i].leaf.to_floats());
}

// A LoKr of a small layer has a whole second factor and so no rank; a rank-stabilised LoRA stores another alpha than was asked
// for.
TEST_P(EveryAdapter, TakesRankAndAlphaFromItsOwnFile) {
  auto options = options_for(GetParam().form, GetParam().dora, GetParam().rank_stabilised);
  options.dim = 6;
  AdapterNetwork first(tiny.network, *tiny.session->stream, options, 7);
  const auto file = std::filesystem::path(testing::TempDir()) / (std::string(GetParam().name) + "-shapes.safetensors");
  save_tensors(file, first.tensors());
  Tiny other;
  options.dim = 3;
  options.alpha = 1;
  AdapterNetwork::take_shapes(file, options, {});
  AdapterNetwork second(other.network, *other.session->stream, options, 99);
  second.start_from(file, {});
  const auto saved = first.tensors(), again = second.tensors();
  ASSERT_EQ(saved.size(), again.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].first, again[i].first);
    EXPECT_EQ(saved[i].second.to_floats(), again[i].second.to_floats()) << saved[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryAdapter,
                         testing::Values(Kind{"lora", AdapterForm::Lora, false}, Kind{"dora", AdapterForm::Lora, true},
                                         Kind{"rslora", AdapterForm::Lora, false, true}, Kind{"loha", AdapterForm::Loha, false},
                                         Kind{"lokr", AdapterForm::Lokr, false}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Alpha is stored in F32 or BF16; √8 is exact in neither.
TEST(AdapterNetwork, ARoundedAlphaIsTheSame) {
  Tiny one, two;
  AdapterOptions o = options_for(AdapterForm::Lora, false, true);
  o.dim = 8;
  const AdapterNetwork first(one.network, *one.session->stream, o, 5);
  const auto file = std::filesystem::path(testing::TempDir()) / "rounded-alpha.safetensors";
  auto tensors = first.tensors();
  for (auto& [name, tensor] : tensors) tensor = tensor.to(*one.session->stream).cast(DType::BF16);
  save_tensors(file, tensors);
  AdapterNetwork(two.network, *two.session->stream, o, 6).start_from(file, {});
  o.alpha = 1;
  Tiny three;
  AdapterNetwork other(three.network, *three.session->stream, o, 6);
  EXPECT_THROW(other.start_from(file, {}), Error);
}

TEST(AdapterNetwork, EachLayerMayHaveItsOwnRank) {
  Tiny one, two;
  AdapterOptions o = options_for(AdapterForm::Lora);
  o.shapes["lora_unet_double_blocks_0_img_attn_qkv"] = {7, 3};
  const AdapterNetwork first(one.network, *one.session->stream, o, 5);
  const auto file = std::filesystem::path(testing::TempDir()) / "ranks.safetensors";
  save_tensors(file, first.tensors());
  AdapterOptions taken;
  AdapterNetwork::take_shapes(file, taken, {});
  EXPECT_EQ(taken.dim, 4);
  EXPECT_EQ(taken.alpha, 2);
  AdapterNetwork second(two.network, *two.session->stream, taken, 6);
  second.start_from(file, {});
  EXPECT_EQ(second.parameters()[0].leaf.shape()[0], 7);
  EXPECT_EQ(second.parameters()[0].leaf.to_floats(), first.parameters()[0].leaf.to_floats());
  EXPECT_EQ(second.parameters()[2].leaf.shape()[0], 4);
}

TEST(AdapterNetwork, PatternsSelectLayers) {
  Tiny tiny;
  AdapterOptions o = options_for(AdapterForm::Lora);
  o.exclude = {".*"};
  o.include = {"double_blocks\\..*_attn\\..*"};
  EXPECT_EQ(AdapterNetwork(tiny.network, *tiny.session->stream, o, 1).modules(), 4u * tiny.network.double_blocks.size());
  o.include = {"nothing"};
  Tiny other;
  EXPECT_THROW(AdapterNetwork(other.network, *other.session->stream, o, 1), Error);
  o.exclude = {};
  o.dim = 0;
  EXPECT_THROW(AdapterNetwork(other.network, *other.session->stream, o, 1), Error);
}

// A layer starts with the same values whichever others are selected.
TEST(AdapterNetwork, StartDoesNotDependOnTheSelection) {
  Tiny all, some;
  AdapterOptions o = options_for(AdapterForm::Lora);
  const AdapterNetwork whole(all.network, *all.session->stream, o, 5);
  o.exclude = {"double_blocks.*"};
  const AdapterNetwork part(some.network, *some.session->stream, o, 5);
  const TrainedParameter& wanted = part.parameters().front();
  bool found = false;
  for (const TrainedParameter& p : whole.parameters())
    if (p.name == wanted.name) {
      found = true;
      EXPECT_EQ(p.leaf.to_floats(), wanted.leaf.to_floats());
    }
  EXPECT_TRUE(found) << wanted.name;
}

TEST(AdapterNetwork, DropoutsAreRepeatableAndOffWhileSampling) {
  Tiny tiny;
  AdapterOptions o = options_for(AdapterForm::Lora);
  o.dropout = {.element = 0.5, .rank = 0.25, .module = 0.1};
  AdapterNetwork adapter(tiny.network, *tiny.session->stream, o, 5);
  std::map<std::string, Tensor> moved;
  for (const TrainedParameter& p : adapter.parameters()) moved[p.name] = tiny.random(p.leaf.shape(), 3, 0.3);
  adapter.restore(moved);
  const auto& layer = *block_layers(tiny.network)[0].layer;
  const Tensor x = tiny.random({2, 3, layer.in}, 3);
  adapter.begin_pass({10, 11}, true);
  const auto first = layer(x).to_floats(), again = layer(x).to_floats();
  EXPECT_EQ(first, again);
  adapter.begin_pass({12, 13}, true);
  EXPECT_NE(first, layer(x).to_floats());
  adapter.begin_pass({10, 11}, false);
  const auto plain = layer(x).to_floats();
  Flux2Transformer copy = tiny.network;
  adapter.begin_pass({10, 11}, true);
  adapter.attach_for_sampling(copy);
  const Tensor sampled = (*block_layers(copy)[0].layer)(x);
  EXPECT_EQ(sampled.to_floats(), plain);
  EXPECT_FALSE(wants_grad(sampled));
}

TEST(AdapterNetwork, NormsAreLimited) {
  Tiny tiny;
  AdapterNetwork adapter(tiny.network, *tiny.session->stream, options_for(AdapterForm::Lora), 5);
  std::map<std::string, Tensor> moved;
  for (const TrainedParameter& p : adapter.parameters()) moved[p.name] = tiny.random(p.leaf.shape(), 3, 1.0);
  adapter.restore(moved);
  const auto report = adapter.limit_norms(1.0);
  EXPECT_EQ(report.scaled, static_cast<int64_t>(adapter.modules()));
  EXPECT_NEAR(report.largest, 1.0, 1e-6);
  EXPECT_EQ(adapter.limit_norms(1.01).scaled, 0);
}

TEST(LokrFactors, AreThoseOfTheSpecification) {
  const auto expect = [](int64_t dimension, int64_t first, int64_t second) {
    const FactorPair f = lokr_factors(dimension, -1);
    EXPECT_EQ(f.first, first) << dimension;
    EXPECT_EQ(f.second, second) << dimension;
  };
  expect(3072, 48, 64);
  expect(9216, 96, 96);
  expect(18432, 128, 144);
  expect(27648, 144, 192);
  expect(12288, 96, 128);
  expect(6144, 64, 96);
  expect(55296, 216, 256);
  EXPECT_EQ(lokr_factors(3072, 8).first, 8);
  EXPECT_EQ(lokr_factors(3072, 8).second, 384);
}

}  // namespace
}  // namespace flux2
