#include "train/trained_image_prompt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/engine.h"
#include "train/flow_step.h"
#include "train/log/checkpoint_file.h"
#include "train/log/test_folder.h"

namespace flux2 {
namespace {

constexpr int64_t kFeature = 24;

std::vector<float> prompt_waves(size_t count, double phase) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + phase));
  return values;
}

TrainOptions options_for(const std::string& form) {
  TrainOptions o;
  o.kind = "image_prompt";
  o.image_prompt_encoder = "clip.safetensors";
  o.image_prompt_form = form;
  return o;
}

// A tiny random transformer and an image-prompt adapter for it.
struct PromptToy {
  explicit PromptToy(const std::string& form) : engine({.device = "cpu", .threads = 2, .profile = Profile::Exact}) {
    session = engine.open_session(engine.random_model("tiny", {.text_encoder = false, .vae = false}));
    network = *session->models.transformer.get();
    std::vector<float> vectors;
    for (const uint64_t s : {1, 2, 3, 4}) {
      const auto one = prompt_waves(kFeature, 1.5 * static_cast<double>(s));
      vectors.insert(vectors.end(), one.begin(), one.end());
    }
    trained = std::make_unique<TrainedImagePrompt>(image_prompt_config(options_for(form), network.config, kFeature),
                                                   *session->stream, DType::F32, 5, feature_statistics(vectors, kFeature));
  }
  FlowStep step(bool checkpoint, double dropout = 0) const {
    FlowStepOptions options{.image_prompts = [this](const Tensor& features) { return trained->inputs(features); },
                            .image_prompt_dropout = dropout,
                            .checkpoint_blocks = checkpoint};
    options.seed = 42;
    return {network, *session->stream, std::move(options), [](const Sample& s, LatentSize) {
              const auto t = static_cast<float>(0.5 + 0.1 * static_cast<double>(s.index % 4));
              return Timestep{t, t, 1.0};
            }};
  }
  LoadedBatch batch(const std::vector<uint64_t>& samples, bool references = false) const {
    LoadedBatch b;
    b.plan.size = {2, 3};
    b.text_length = 4;
    b.text_width = network.config.text_width;
    if (references) {
      b.plan.references = {{2, 2}};
      b.references.push_back({.size = {2, 2}, .values = {}});
    }
    const auto append = [](std::vector<float>& to, int64_t count, double phase) {
      const auto more = prompt_waves(static_cast<size_t>(count), phase);
      to.insert(to.end(), more.begin(), more.end());
    };
    for (const uint64_t s : samples) {
      const auto phase = static_cast<double>(s);
      b.plan.samples.push_back({.item = 0, .index = s});
      append(b.latents, 128 * 6, phase);
      append(b.text, 4 * b.text_width, 0.5 + phase);
      append(b.features, kFeature, 1.5 * phase);
      if (references) append(b.references[0].values, 128 * 4, 3 + phase);
      b.loss_multiplier.push_back(1);
    }
    return b;
  }
  // Values that are not 0, so that everything has a gradient.
  void move() const {
    for (const TrainedParameter& p : trained->parameters()) {
      const auto values = prompt_waves(static_cast<size_t>(p.leaf.numel()), 0.3);
      for (size_t i = 0; i < values.size(); ++i) p.leaf.data<float>()[i] += 0.1f * values[i];
    }
  }

  Engine engine;
  std::unique_ptr<ModelSession> session;
  Flux2Transformer network{Flux2Config{}};
  std::unique_ptr<TrainedImagePrompt> trained;
};

const auto kNothing = [](const std::vector<uint64_t>&) {};

TEST(TrainedImagePrompt, GradientsMatchDifferences) {
  for (const char* form : {"tokens", "decoupled"})
    for (const bool checkpoint : {false, true}) {
      const PromptToy toy(form);
      toy.move();
      const FlowStep step = toy.step(checkpoint);
      const auto total = [&] {
        const auto r = step.train(toy.batch({1, 2}), 2, kNothing);
        return (r.losses[0] + r.losses[1]) / 2;
      };
      const auto result = step.train(toy.batch({1, 2}), 2, kNothing);
      for (const TrainedParameter& p : toy.trained->parameters()) {
        ASSERT_TRUE(result.gradients.contains(p.leaf)) << form << " " << p.name;
        const auto g = result.gradients[p.leaf].to_floats();
        size_t at = 0;
        for (size_t i = 0; i < g.size(); ++i)
          if (std::abs(g[i]) > std::abs(g[at])) at = i;
        EXPECT_NE(g[at], 0) << form << " " << p.name;
        float& value = p.leaf.data<float>()[at];
        const float kept = value, h = 2e-2f;
        value = kept + h;
        const double up = total();
        value = kept - h;
        const double down = total();
        value = kept;
        EXPECT_NEAR((up - down) / (2 * double{h}), g[at], 3e-2 * std::abs(g[at]) + 2e-6) << form << " " << p.name << " " << at;
      }
    }
}

TEST(TrainedImagePrompt, CheckpointingGivesTheSameBits) {
  for (const char* form : {"tokens", "decoupled"}) {
    const PromptToy toy(form);
    toy.move();
    const auto plain = toy.step(false).train(toy.batch({1, 2}, true), 2, kNothing);
    const auto again = toy.step(true).train(toy.batch({1, 2}, true), 2, kNothing);
    EXPECT_EQ(plain.losses, again.losses);
    for (const TrainedParameter& p : toy.trained->parameters())
      EXPECT_EQ(plain.gradients[p.leaf].to_floats(), again.gradients[p.leaf].to_floats()) << form << " " << p.name;
  }
}

TEST(TrainedImagePrompt, DecoupledStartsAsTheBase) {
  const PromptToy toy("decoupled");
  const FlowStep step = toy.step(false);
  LoadedBatch without = toy.batch({1, 2});
  without.features.clear();
  // Not the same bits: ops that record a gradient are not fused with others.
  EXPECT_NEAR(step.validate(toy.batch({1, 2}), 0.7), step.validate(without, 0.7), 1e-5);
  const auto first = step.train(toy.batch({1, 2}), 2, kNothing);
  for (const TrainedParameter& p : toy.trained->parameters()) {
    double sum = 0;
    for (const float g : first.gradients[p.leaf].to_floats()) sum += std::abs(g);
    EXPECT_EQ(sum > 0, p.name.ends_with("v_proj.weight")) << p.name;
  }
  toy.move();
  EXPECT_GT(std::abs(step.validate(toy.batch({1, 2}), 0.7) - step.validate(without, 0.7)), 1e-3);
}

TEST(TrainedImagePrompt, FirstValuesDependOnTheSeed) {
  const PromptToy toy("decoupled");
  Stream& stream = *toy.session->stream;
  const TrainedImagePrompt same(toy.trained->config(), stream, DType::F32, 5),
      other(toy.trained->config(), stream, DType::F32, 6);
  for (size_t i = 0; i < same.parameters().size(); ++i) {
    const auto& [name, leaf, up, encoder] = toy.trained->parameters()[i];
    const auto values = leaf.to_floats();
    EXPECT_EQ(values, same.parameters()[i].leaf.to_floats()) << name;
    const bool fixed = name.find("norm") != name.npos || name.ends_with("v_proj.weight");
    EXPECT_EQ(values == other.parameters()[i].leaf.to_floats(), fixed) << name;
    if (name != "image_proj.proj.weight") continue;
    for (const float v : values) ASSERT_LE(std::abs(v), 1 / std::sqrt(float{kFeature}));
  }
}

// All samples of a batch keep or lose their image prompts, and the same ones in every run.
TEST(TrainedImagePrompt, ImagePromptsAreDropped) {
  const PromptToy toy("tokens");
  const FlowStep step = toy.step(false, 0.3);
  int dropped = 0;
  for (uint64_t s = 0; s < 200; ++s) {
    const bool here = !step.prepare(toy.batch({2 * s, 2 * s + 1}))[0].features.defined();
    EXPECT_EQ(here, !step.prepare(toy.batch({2 * s}))[0].features.defined());
    dropped += here ? 1 : 0;
    if (here && dropped == 1) {  // nothing to learn, but the loss is reported
      const auto r = step.train(toy.batch({2 * s, 2 * s + 1}), 2, kNothing);
      EXPECT_EQ(r.losses.size(), 2u);
      EXPECT_TRUE(r.gradients.by_node.empty());
    }
  }
  EXPECT_NEAR(dropped, 60, 25);
}

TEST(TrainedImagePrompt, SavedFilesAreRecognisedAndStartedFrom) {
  const TestFolder folder;
  for (const char* form : {"tokens", "decoupled"}) {
    const PromptToy toy(form);
    toy.move();
    RunFacts facts;
    facts.network.reset();
    facts.extra[kImagePromptMetadata] = toy.trained->config().metadata();
    write_checkpoint(folder / "x.safetensors", toy.trained->tensors(), facts, {});
    EXPECT_EQ(detect_image_prompt(*open_weights(folder / "x.safetensors")), toy.trained->config());
    TrainedImagePrompt other(toy.trained->config(), *toy.session->stream, DType::F32, 99);
    other.start_from(folder / "x.safetensors", {});
    const auto saved = toy.trained->tensors(), again = other.tensors();
    for (size_t i = 0; i < saved.size(); ++i)
      EXPECT_EQ(saved[i].second.to_floats(), again[i].second.to_floats()) << saved[i].first;
    // The file computes from vectors as they are what training computed from standardised ones.
    const auto vectors = prompt_waves(2 * kFeature, 0.4);
    const Tensor features = Tensor::from(*toy.session->stream, DType::F32, {2, kFeature}, std::span<const float>(vectors));
    const ImagePromptNetwork plain =
        load_image_prompt(*open_weights(folder / "x.safetensors"), toy.trained->config(), *toy.session->stream, DType::F32);
    const ImagePromptInputs trained = toy.trained->inputs(features);
    const bool tokens = trained.tokens.defined();
    const auto a = (tokens ? trained.tokens : trained.keys[0][0].v).to_floats(),
               b = (tokens ? plain.tokens(features) : plain.keys(plain.tokens(features))[0].v).to_floats();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5) << form << " " << i;
    ImagePromptConfig more = toy.trained->config();
    more.tokens = 5;
    TrainedImagePrompt larger(more, *toy.session->stream, DType::F32, 99);
    EXPECT_THROW(larger.start_from(folder / "x.safetensors", {}), Error);
  }
}

std::string options_refusal(const TrainOptions& options) {
  try {
    check_train_options(options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(TrainedImagePrompt, OptionsAreChecked) {
  EXPECT_EQ(options_refusal(options_for("tokens")), "");
  const auto with = [](const std::function<void(TrainOptions&)>& change) {
    TrainOptions o = options_for("");
    change(o);
    return options_refusal(o);
  };
  EXPECT_EQ(with([](auto& o) { o.image_prompt_encoder = ""; }), "kind image_prompt needs an image encoder (CLIP)");
  EXPECT_EQ(with([](auto& o) { o.network_dim = 16; }),
            "network_dim cannot be combined with kind image_prompt: an image-prompt adapter has no layers with a rank");
  EXPECT_EQ(with([](auto& o) { o.zero_cond_t = true; }),
            "zero_cond_t cannot be combined with kind image_prompt: image prompts do not work with references at time 0");
  EXPECT_EQ(with([](auto& o) { o.full = true; }),
            "kind image_prompt trains an adapter; it cannot be combined with full or train");
  EXPECT_EQ(with([](auto& o) { o.image_prompt_tokens = 0; }), "image_prompt_tokens must be between 1 and 1024, not 0");
  EXPECT_EQ(with([](auto& o) { o.image_prompt_dropout = 1; }), "image_prompt_dropout must be at least 0 and less than 1, not 1");
  TrainOptions adapter;
  adapter.image_prompt_tokens = 4;
  EXPECT_EQ(options_refusal(adapter), "image_prompt_tokens is for training an image-prompt adapter");
  EXPECT_THROW(check_given_train_options(options_for(""), {"network_alpha"}), Error);
  EXPECT_NO_THROW(check_given_train_options(options_for(""), {"network_weights", "learning_rate"}));
}

}  // namespace
}  // namespace flux2
