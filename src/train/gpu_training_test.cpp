// Training on a GPU against the same training on the CPU, for every part that can be trained. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/engine.h"
#include "engine/weight_stream.h"
#include "ops/view.h"
#include "train/adapters/adapter_network.h"
#include "train/autoencoder_step.h"
#include "train/flow_step.h"
#include "train/trained_text_encoder.h"
#include "train/whole_network.h"

namespace flux2 {
namespace {

const auto kAnySample = [](const std::vector<uint64_t>&) {};
const DrawTimestep kFixedTime = [](const Sample&, LatentSize) { return Timestep{0.4f, 0.4f, 1.0}; };

struct Learnt {
  double loss = 0;
  std::vector<std::vector<float>> gradients;
};

// |a − b| / |b| over all gradients together.
double distance(const Learnt& a, const Learnt& b) {
  double difference = 0, size = 0;
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < std::min(a.gradients.size(), b.gradients.size()); ++i) {
    EXPECT_EQ(a.gradients[i].size(), b.gradients[i].size()) << i;
    for (size_t j = 0; j < std::min(a.gradients[i].size(), b.gradients[i].size()); ++j) {
      difference += std::pow(double{a.gradients[i][j]} - b.gradients[i][j], 2);
      size += double{b.gradients[i][j]} * b.gradients[i][j];
    }
  }
  EXPECT_GT(size, 0);
  return std::sqrt(difference / size);
}

std::vector<float> sines(int64_t count, double step, double phase) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1) * static_cast<double>(i % 7 + 1) + phase));
  return values;
}

// The same weights on every device, in F32 with the values of BF16.
template <class Network>
void use_values(Network& network, Stream& stream) {
  int64_t n = 0;
  network.visit([&](const Parameter& p) {
    std::vector<float> values = sines(p.tensor.numel(), 0.37, static_cast<double>(++n));
    const bool is_scale = p.tensor.rank() == 1;
    const float spread = is_scale ? 0.1f : 0.7f / std::sqrt(static_cast<float>(p.tensor.numel() / p.tensor.dim(0)));
    for (float& v : values) v = (is_scale ? 1.0f : 0.0f) + spread * v;
    const Tensor exact = Tensor::from(stream, DType::F32, p.tensor.shape(), std::span<const float>(values));
    p.tensor = exact.cast(DType::BF16).cast(DType::F32);
  });
}

std::unique_ptr<Engine> engine_on(const std::string& device, Profile profile) {
  return std::make_unique<Engine>(EngineOptions{.device = device, .threads = 2, .profile = profile});
}

Learnt autoencoder_on(const std::string& device, Profile profile) {
  const auto engine = engine_on(device, profile);
  const auto session = engine->open_session(engine->random_model("tiny", {.transformer = false, .text_encoder = false}));
  Vae vae = *session->models.vae;
  Stream& stream = *session->stream;
  std::vector<Tensor> leaves;
  use_values(vae, stream);
  vae.visit([&](const Parameter& p) {
    if (p.kind == ParameterKind::Statistic) return;
    leaves.push_back(parameter(p.tensor));
    p.tensor = cast(leaves.back(), engine->activations());
  });
  LoadedBatch batch;
  batch.plan.size = {2, 2};
  for (const uint64_t s : {4, 9}) {
    batch.plan.samples.push_back({.item = 0, .index = s});
    batch.loss_multiplier.push_back(1);
    const std::vector<float> pixels = sines(32 * 32 * 3, 0.01, static_cast<double>(s));
    batch.pixels.insert(batch.pixels.end(), pixels.begin(), pixels.end());
  }
  const AutoencoderStep step(stream, {.seed = 3, .activations = engine->activations()});
  const auto result = step.train(vae, batch, 2);
  Learnt learnt{.loss = std::accumulate(result.losses.begin(), result.losses.end(), 0.0), .gradients = {}};
  for (const Tensor& leaf : leaves) learnt.gradients.push_back(result.gradients[leaf].to_floats());
  return learnt;
}

// The whole transformer together with its text encoder.
Learnt encoder_on(const std::string& device, Profile profile) {
  const auto engine = engine_on(device, profile);
  const auto session = engine->open_session(engine->random_model("tiny", {.vae = false}));
  const std::shared_ptr<Stream>& stream = session->stream;
  Flux2Transformer network = *session->models.transformer.get();
  TextEncoder encoder = *session->models.text_encoder.get();
  use_values(network, *stream);
  use_values(encoder, *stream);
  auto whole = std::make_unique<WholeNetwork>(network, *stream, WholeNetworkOptions{.dtype = DType::F32, .freeze = {}});
  const TrainedTextEncoder model(std::move(whole), encoder, nullptr, *stream, {.activations = engine->activations()});

  LoadedBatch batch;
  batch.plan.size = {2, 3};
  batch.plan.samples = {{.item = 0, .index = 1}, {.item = 0, .index = 2}};
  batch.latents = sines(2 * kLatentChannels * 6, 0.3, 0.5);
  batch.loss_multiplier = {1, 1};
  batch.text_length = 6;
  batch.token_ids = {3, 17, 5, 0, 0, 0, 9, 2, 41, 8, 0, 0};
  batch.token_mask = {1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0};
  const FlowStep step(
      network, *stream,
      {.seed = 42,
       .text_states = [&](const FlowInputs& in) { return model.states(in.token_ids.to(*stream), in.token_mask.to(*stream)); },
       .activations = engine->activations()},
      kFixedTime);
  const auto result = step.train(batch, 2, kAnySample);
  Learnt learnt{.loss = std::accumulate(result.losses.begin(), result.losses.end(), 0.0), .gradients = {}};
  bool reaches_encoder = false;
  for (const TrainedParameter& p : model.parameters()) {
    const bool has = result.gradients.contains(p.leaf);
    reaches_encoder = reaches_encoder || (has && p.is_encoder);
    learnt.gradients.push_back(has ? result.gradients[p.leaf].to_floats() : std::vector<float>());
  }
  EXPECT_TRUE(reaches_encoder);
  return learnt;
}

// Adapters on a random model of which these blocks are streamed.
Learnt adapter_with(const std::vector<size_t>& streamed, Quant quant) {
  const Engine engine({.device = "cuda", .quant = quant, .chosen_blocks = streamed});
  const auto session = engine.open_session(engine.random_model("tiny", {.text_encoder = false, .vae = false}));
  Flux2Transformer network = *session->models.transformer.get();
  EXPECT_EQ(network.schedule != nullptr, !streamed.empty());
  if (auto* blocks = dynamic_cast<WeightStream*>(network.schedule.get())) blocks->expect_gradients(true);
  AdapterOptions options;
  options.alpha = 4;
  options.activations = engine.activations();
  AdapterNetwork adapter(network, *session->stream, options, 3);
  for (const TrainedParameter& p : adapter.parameters()) {
    const std::vector<float> values = sines(p.leaf.numel(), 0.1, 0.3);
    p.leaf.detached().copy_from(Tensor::from(*session->stream, DType::F32, p.leaf.shape(), std::span<const float>(values)));
  }
  adapter.refresh();
  LoadedBatch batch;
  batch.plan.size = {2, 3};
  batch.plan.samples = {{.item = 0, .index = 1}};
  batch.latents = sines(kLatentChannels * 6, 0.3, 0.5);
  batch.loss_multiplier = {1};
  batch.text_length = 16;
  batch.text_width = network.config.text_width;
  batch.text = sines(16 * batch.text_width, 0.2, 0.1);
  const FlowStep step(network, *session->stream, {.seed = 42, .checkpoint_blocks = true, .activations = engine.activations()},
                      kFixedTime);
  Learnt learnt;
  for (int repeat = 0; repeat < 3; ++repeat) {  // places are used again
    const auto result = step.train(batch, 1, kAnySample);
    Learnt now{.loss = result.losses[0], .gradients = {}};
    for (const TrainedParameter& p : adapter.parameters())
      now.gradients.push_back(result.gradients.contains(p.leaf) ? result.gradients[p.leaf].to_floats() : std::vector<float>());
    if (repeat > 0) {
      EXPECT_EQ(now.gradients, learnt.gradients) << repeat;
    }
    learnt = now;
  }
  return learnt;
}

// The parts above must learn something on the CPU: otherwise the comparisons with a GPU would prove nothing.
TEST(TrainingOnGpu, PartsLearnOnTheCpu) {
  for (const auto part : {autoencoder_on, encoder_on}) {
    const Learnt exact = part("cpu", Profile::Exact);
    EXPECT_TRUE(std::isfinite(exact.loss));
    EXPECT_GT(exact.loss, 0.01);
    EXPECT_LE(distance(exact, part("cpu", Profile::Exact)), 0.0);
  }
}

TEST(TrainingOnGpu, TheAutoencoderLearnsWhatItLearnsOnTheCpu) {
  if (!gpu_is_there()) GTEST_SKIP() << "needs a GPU";
  const Learnt expected = autoencoder_on("cpu", Profile::Exact), exact = autoencoder_on("cuda", Profile::Exact),
               fast = autoencoder_on("cuda", Profile::Fast);
  GTEST_LOG_(INFO) << fmt::format("loss {:.6f}: exact {:.6f}, gradients {:.2e} apart; fast {:.6f}, {:.2e} apart", expected.loss,
                                  exact.loss, distance(exact, expected), fast.loss, distance(fast, expected));
  EXPECT_NEAR(exact.loss, expected.loss, 1e-4 * expected.loss);
  EXPECT_LE(distance(exact, expected), 1e-3);
  EXPECT_NEAR(fast.loss, expected.loss, 2e-2 * expected.loss);
  EXPECT_LE(distance(fast, expected), 0.1);
}

TEST(TrainingOnGpu, TheTextEncoderLearnsWhatItLearnsOnTheCpu) {
  if (!gpu_is_there()) GTEST_SKIP() << "needs a GPU";
  const Learnt expected = encoder_on("cpu", Profile::Exact), exact = encoder_on("cuda", Profile::Exact),
               fast = encoder_on("cuda", Profile::Fast);
  GTEST_LOG_(INFO) << fmt::format("loss {:.6f}: exact {:.6f}, gradients {:.2e} apart; fast {:.6f}, {:.2e} apart", expected.loss,
                                  exact.loss, distance(exact, expected), fast.loss, distance(fast, expected));
  EXPECT_NEAR(exact.loss, expected.loss, 1e-4 * expected.loss);
  EXPECT_LE(distance(exact, expected), 1e-3);
  EXPECT_NEAR(fast.loss, expected.loss, 2e-2 * expected.loss);
  EXPECT_LE(distance(fast, expected), 0.1);
}

TEST(TrainingOnGpu, StreamedBlocksGiveTheSameGradients) {
  if (!gpu_is_there()) GTEST_SKIP() << "needs a GPU";
  for (const Quant quant : {Quant::None, Quant::Fp8}) {
    const Learnt resident = adapter_with({}, quant);
    double largest = 0;
    for (const auto& g : resident.gradients)
      for (const float v : g) largest = std::max(largest, double{std::abs(v)});
    EXPECT_GT(largest, 0);
    for (const std::vector<size_t>& streamed : {std::vector<size_t>{1}, {0, 1}, {0, 1, 2}}) {
      const Learnt same = adapter_with(streamed, quant);
      EXPECT_EQ(same.loss, resident.loss) << streamed.size();
      EXPECT_EQ(same.gradients, resident.gradients) << name_of(quant) << " " << streamed.size();
    }
  }
}

}  // namespace
}  // namespace flux2
