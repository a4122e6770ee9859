#include "train/flow_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "train/adapters/adapter_network.h"

namespace flux2 {
namespace {

std::vector<float> waves(size_t count, double phase) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + phase));
  return values;
}

TEST(FlowLoss, GradientsMatchDifferences) {
  for (const FlowLoss kind : {FlowLoss::Mse, FlowLoss::Huber, FlowLoss::SmoothL1}) {
    std::vector<float> v = waves(2 * 3 * 128, 0.1);
    const std::vector<float> target = waves(v.size(), 1.3), mask = {1, 0.5f, 0, 0.25f, 1, 1};
    const std::vector<double> weight = {0.5, 2.0};
    const auto total = [&] {
      const auto r = flow_loss({.velocity = v,
                                .target = target,
                                .mask = mask,
                                .weight = weight,
                                .tokens = 3,
                                .kind = kind,
                                .delta = 0.4,
                                .divisor = 4});
      return (r.losses[0] + r.losses[1]) / 4;
    };
    const auto r = flow_loss(
        {.velocity = v, .target = target, .mask = mask, .weight = weight, .tokens = 3, .kind = kind, .delta = 0.4, .divisor = 4});
    for (const size_t i : {size_t{0}, size_t{200}, size_t{300}, size_t{700}}) {
      const float kept = v[i];
      v[i] = kept + 1e-2f;
      const double up = total();
      v[i] = kept - 1e-2f;
      const double down = total();
      v[i] = kept;
      EXPECT_NEAR(r.gradient[i], (up - down) / 2e-2, 1e-4 * (0.01 + std::abs(r.gradient[i]) * 100)) << i;
    }
  }
}

TEST(FlowLoss, IsThePlainMeanWithoutMaskAndWeights) {
  const std::vector<float> v = waves(4 * 128, 0), target = waves(v.size(), 2);
  double mean = 0;
  for (size_t i = 0; i < v.size(); ++i)
    mean += (double{v[i]} - target[i]) * (double{v[i]} - target[i]) / static_cast<double>(v.size());
  const std::vector<double> weight = {1.0};
  EXPECT_NEAR(flow_loss({.velocity = v, .target = target, .mask = {}, .weight = weight, .tokens = 4}).losses[0], mean, 1e-12);
}

TEST(FlowLoss, AMaskOfZerosTeachesNothing) {
  const std::vector<float> v = waves(2 * 128, 0), target = waves(v.size(), 2), mask = {0, 0};
  const std::vector<double> weight = {1.0};
  const auto r = flow_loss({.velocity = v, .target = target, .mask = mask, .weight = weight, .tokens = 2});
  EXPECT_EQ(r.losses[0], 0);
  for (const float g : r.gradient) EXPECT_EQ(g, 0);
}

// The tensors on the device against the equation on the host.
TEST(FlowLoss, OnTheDeviceItIsTheSame) {
  const Engine engine({.device = "cpu", .threads = 2, .profile = Profile::Exact});
  const auto session = engine.open_session(engine.random_model("tiny", {.text_encoder = false, .vae = false}));
  const std::vector<float> v = waves(2 * 3 * 128, 0.1), target = waves(v.size(), 1.3), mask = {1, 0.5f, 0, 0.25f, 1, 1};
  const std::vector<double> weight = {0.5, 2.0};
  for (const bool masked : {false, true}) {
    const FlowLossResult expected = flow_loss({.velocity = v,
                                               .target = target,
                                               .mask = masked ? std::span<const float>(mask) : std::span<const float>(),
                                               .weight = weight,
                                               .tokens = 3,
                                               .divisor = 4});
    std::vector<float> weights;
    for (size_t b = 0; b < 2; ++b) {
      const double total = masked ? double{mask[3 * b]} + mask[3 * b + 1] + mask[3 * b + 2] : 3.0;
      for (size_t i = 0; i < (masked ? 3u : 1u); ++i)
        weights.push_back(static_cast<float>(weight[b] / (total * 128) * (masked ? mask[3 * b + i] : 1)));
    }
    const auto on_device = [&](const Shape& shape, const std::vector<float>& values) {
      return Tensor::from(*session->stream, DType::F32, shape, std::span<const float>(values));
    };
    const FlowLossTensors loss =
        flow_mse(on_device({2, 3, 128}, v), on_device({2, 3, 128}, target), on_device({2, masked ? 3 : 1, 1}, weights), 4);
    const std::vector<float> losses = loss.losses.to_floats(), gradient = loss.gradient.to_floats();
    for (size_t b = 0; b < 2; ++b) EXPECT_NEAR(losses[b], expected.losses[b], 1e-5 * expected.losses[b]);
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient[i], expected.gradient[i], 1e-6 * std::abs(expected.gradient[i]) + 1e-9);
  }
}

struct Toy {
  Toy() : engine({.device = "cpu", .threads = 2, .profile = Profile::Exact}) {
    session = engine.open_session(engine.random_model("tiny", {.text_encoder = false, .vae = false}));
    network = *session->models.transformer.get();
    AdapterOptions o;
    o.alpha = 4;
    adapter = std::make_unique<AdapterNetwork>(network, *session->stream, o, 3);
  }
  FlowStep step(FlowStepOptions options) const {
    options.seed = 42;
    return {network, *session->stream, std::move(options), [](const Sample& s, LatentSize) {
              const auto t = static_cast<float>(0.2 + 0.1 * static_cast<double>(s.index));
              return Timestep{t, t, 1.0};
            }};
  }
  FlowStep step(bool checkpoint) const { return step(FlowStepOptions{.checkpoint_blocks = checkpoint}); }
  // Second matrices that are not 0, so that the adapter changes the model.
  void move_adapter() const {
    for (const TrainedParameter& p : adapter->parameters()) {
      const auto values = waves(static_cast<size_t>(p.leaf.numel()), 0.3);
      for (size_t i = 0; i < values.size(); ++i) p.leaf.data<float>()[i] += 0.05f * values[i];
    }
    adapter->refresh();
  }
  // The gradients against differences of Σ losses / 2, at the largest element of some parameters.
  void expect_gradients(const FlowStep& step, bool references) const {
    const auto ignore = [](const std::vector<uint64_t>&) {};
    const auto total = [&] {
      const auto r = step.train(batch({1, 2}, references), 2, ignore);
      return (r.losses[0] + r.losses[1]) / 2;
    };
    const auto result = step.train(batch({1, 2}, references), 2, ignore);
    int compared = 0;
    for (size_t n = 0; n < adapter->parameters().size(); n += 5) {
      const TrainedParameter& p = adapter->parameters()[n];
      if (!result.gradients.contains(p.leaf)) continue;
      const auto g = result.gradients[p.leaf].to_floats();
      size_t at = 0;
      for (size_t i = 0; i < g.size(); ++i)
        if (std::abs(g[i]) > std::abs(g[at])) at = i;
      float& value = p.leaf.data<float>()[at];
      const float kept = value, h = 2e-2f;
      value = kept + h;
      adapter->refresh();
      const double up = total();
      value = kept - h;
      adapter->refresh();
      const double down = total();
      value = kept;
      adapter->refresh();
      EXPECT_NEAR((up - down) / (2 * double{h}), g[at], 2e-2 * std::abs(g[at]) + 1e-6) << p.name;
      ++compared;
    }
    EXPECT_GT(compared, 3);
  }
  LoadedBatch batch(std::vector<uint64_t> samples, bool references) const {
    LoadedBatch b;
    b.plan.size = {2, 3};
    for (const uint64_t s : samples) b.plan.samples.push_back({.item = 0, .index = s});
    const auto n = samples.size();
    for (const uint64_t s : samples) {
      const auto one = waves(128 * 6, static_cast<double>(s));
      b.latents.insert(b.latents.end(), one.begin(), one.end());
      b.loss_multiplier.push_back(1);
    }
    b.text_length = 4;
    b.text_width = network.config.text_width;
    for (const uint64_t s : samples) {
      const auto one = waves(static_cast<size_t>(4 * b.text_width), 0.5 + static_cast<double>(s));
      b.text.insert(b.text.end(), one.begin(), one.end());
    }
    if (references) {
      b.plan.references = {{2, 2}};
      LoadedBatch::Reference r{.size = {2, 2}, .values = {}};
      for (size_t i = 0; i < n; ++i) {
        const auto one = waves(128 * 4, 3.0 + static_cast<double>(samples[i]));
        r.values.insert(r.values.end(), one.begin(), one.end());
      }
      b.references.push_back(std::move(r));
    }
    return b;
  }

  Engine engine;
  std::unique_ptr<ModelSession> session;
  Flux2Transformer network{Flux2Config{}};
  std::unique_ptr<AdapterNetwork> adapter;
};

// A batch of two gives the sum of the gradients of its samples, so ranks and accumulation can share the work.
TEST(FlowStep, ABatchIsTheSumOfItsSamples) {
  for (const bool references : {false, true}) {
    Toy toy;
    const FlowStep step = toy.step(false);
    const auto ignore = [](const std::vector<uint64_t>&) {};
    const auto both = step.train(toy.batch({1, 2}, references), 2, ignore);
    const auto first = step.train(toy.batch({1}, references), 2, ignore),
               second = step.train(toy.batch({2}, references), 2, ignore);
    EXPECT_NEAR(both.losses[0], first.losses[0], 1e-6);
    EXPECT_NEAR(both.losses[1], second.losses[0], 1e-6);
    int compared = 0;
    for (const TrainedParameter& p : toy.adapter->parameters()) {
      if (!both.gradients.contains(p.leaf)) continue;
      const auto a = both.gradients[p.leaf].to_floats(), b = first.gradients[p.leaf].to_floats(),
                 c = second.gradients[p.leaf].to_floats();
      double largest = 1e-9;
      for (const float g : a) largest = std::max(largest, double{std::abs(g)});
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i] + c[i], 2e-5 * largest) << p.name;
      ++compared;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST(FlowStep, CheckpointingGivesTheSameBits) {
  Toy toy;
  const auto ignore = [](const std::vector<uint64_t>&) {};
  const auto plain = toy.step(false).train(toy.batch({1, 2}, true), 2, ignore);
  const auto again = toy.step(true).train(toy.batch({1, 2}, true), 2, ignore);
  EXPECT_EQ(plain.losses, again.losses);
  for (const TrainedParameter& p : toy.adapter->parameters()) {
    if (!plain.gradients.contains(p.leaf)) continue;
    EXPECT_EQ(plain.gradients[p.leaf].to_floats(), again.gradients[p.leaf].to_floats()) << p.name;
  }
}

TEST(FlowStep, ReferenceRulesChangeTheLossAndHaveGradients) {
  Toy toy;
  toy.move_adapter();
  const auto ignore = [](const std::vector<uint64_t>&) {};
  const auto loss = [&](const FlowStepOptions& options, bool references) {
    return toy.step(options).train(toy.batch({1}, references), 1, ignore).losses[0];
  };
  const FlowStepOptions zero{.zero_cond_t = true}, kv{.kv_references = true};
  EXPECT_GT(std::abs(loss({}, true) - loss(zero, true)), 1e-7);
  EXPECT_GT(std::abs(loss(kv, true) - loss(zero, true)), 1e-7);
  EXPECT_EQ(loss({}, false), loss(zero, false));  // nothing to change without references
  EXPECT_EQ(loss({}, false), loss(kv, false));
  toy.expect_gradients(toy.step(zero), true);
  toy.expect_gradients(toy.step(kv), true);
}

// The second loss is 0 while the adapter changes nothing, and its gradient belongs to the sum.
TEST(FlowStep, OutputPreservationComparesWithTheModelWithoutAdapter) {
  Toy toy;
  FlowStepOptions options;
  options.preservation = 3;
  const auto text = waves(static_cast<size_t>(4 * toy.network.config.text_width), 2.5);
  options.class_text = Tensor::host_copy(text.data(), DType::F32, {4, toy.network.config.text_width});
  options.base = toy.session->models.transformer.get();
  const auto ignore = [](const std::vector<uint64_t>&) {};
  const auto loss = [&](const FlowStep& step) { return step.train(toy.batch({1, 2}, false), 2, ignore).losses; };
  const auto at_first = loss(toy.step(options)), plain = loss(toy.step(false));
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(at_first[i], plain[i], 1e-9);  // fused kernels round differently
  toy.move_adapter();
  const auto with = loss(toy.step(options)), without = loss(toy.step(false));
  EXPECT_GT(with[0], without[0] + 1e-5);
  EXPECT_GT(with[1], without[1] + 1e-5);
  toy.expect_gradients(toy.step(options), false);
}

// Captions are numbers here: their states are waves that begin there.
FlowStepOptions distilling(const Toy& toy, const Distillation& distillation) {
  FlowStepOptions options;
  options.distillation = distillation;
  options.text_states = [&toy](const FlowInputs& inputs) {
    std::vector<float> states;
    const auto one = static_cast<size_t>(4 * toy.network.config.text_width);
    for (int64_t b = 0; b < inputs.size(); ++b) {
      const auto wave = waves(one, 0.5 + inputs.token_ids.data<int32_t>()[4 * b]);
      states.insert(states.end(), wave.begin(), wave.end());
    }
    return Tensor::from(*toy.session->stream, DType::F32, {inputs.size(), 4, toy.network.config.text_width},
                        std::span<const float>(states));
  };
  return options;
}

LoadedBatch captioned(LoadedBatch batch) {
  batch.text.clear();
  for (const Sample& s : batch.plan.samples) {
    batch.token_ids.insert(batch.token_ids.end(), 4, static_cast<int32_t>(s.index));
    batch.token_mask.insert(batch.token_mask.end(), 4, 1);
  }
  return batch;
}

TEST(Distillation, AStudentThatIsItsTeacherHasNothingToLearn) {
  Toy toy;
  const auto ignore = [](const std::vector<uint64_t>&) {};
  Distillation d{.steps = 2,
                 .teacher_steps = 2,
                 .guidance = 1,
                 .reference_guidance = 1,
                 .teacher = toy.session->models.transformer.get(),
                 .empty_caption = {{9, 9, 9, 9}, {1, 1, 1, 1}}};
  const auto losses = [&](const Distillation& how, bool references) {
    return toy.step(distilling(toy, how)).train(captioned(toy.batch({1, 2}, references)), 2, ignore).losses;
  };
  for (const bool references : {false, true})
    for (const double loss : losses(d, references)) EXPECT_LT(loss, 1e-9);
  // Guidance, and a teacher with more steps, are something to learn. Each has its own setting.
  Distillation guided = d, slower = d;
  guided.guidance = 3.5;
  slower.teacher_steps = 8;
  EXPECT_GT(losses(guided, false)[0], 1e-6);
  EXPECT_LT(losses(guided, true)[0], 1e-9);
  EXPECT_GT(losses(slower, false)[0], 1e-9);
}

TEST(Distillation, GradientsMatchDifferences) {
  Toy toy;
  toy.move_adapter();
  const Distillation d{.steps = 2,
                       .teacher_steps = 4,
                       .guidance = 2,
                       .reference_guidance = 1.5,
                       .teacher = toy.session->models.transformer.get(),
                       .empty_caption = {{9, 9, 9, 9}, {1, 1, 1, 1}}};
  const FlowStep step = toy.step(distilling(toy, d));
  const auto ignore = [](const std::vector<uint64_t>&) {};
  for (const bool references : {false, true}) {
    const auto total = [&] {
      const auto r = step.train(captioned(toy.batch({1, 2}, references)), 2, ignore);
      return (r.losses[0] + r.losses[1]) / 2;
    };
    const auto result = step.train(captioned(toy.batch({1, 2}, references)), 2, ignore);
    int compared = 0;
    for (size_t n = 0; n < toy.adapter->parameters().size(); n += 7) {
      const TrainedParameter& p = toy.adapter->parameters()[n];
      if (!result.gradients.contains(p.leaf)) continue;
      const auto g = result.gradients[p.leaf].to_floats();
      const auto at = static_cast<size_t>(
          std::max_element(g.begin(), g.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }) - g.begin());
      float& value = p.leaf.data<float>()[at];
      const float kept = value, h = 2e-2f;
      value = kept + h;
      toy.adapter->refresh();
      const double up = total();
      value = kept - h;
      toy.adapter->refresh();
      const double down = total();
      value = kept;
      toy.adapter->refresh();
      EXPECT_NEAR((up - down) / (2 * double{h}), g[at], 3e-2 * std::abs(g[at]) + 1e-6) << p.name;
      ++compared;
    }
    EXPECT_GT(compared, 2);
  }
}

TEST(FlowStep, ValidationUsesNoiseOfItsOwn) {
  Toy toy;
  const FlowStep step = toy.step(false);
  const double low = step.validate(toy.batch({1}, false), 0.1), high = step.validate(toy.batch({1}, false), 0.9);
  EXPECT_GT(low, 0);
  EXPECT_GT(high, 0);
  EXPECT_NE(low, high);
  EXPECT_EQ(low, step.validate(toy.batch({1}, false), 0.1));
}

}  // namespace
}  // namespace flux2
