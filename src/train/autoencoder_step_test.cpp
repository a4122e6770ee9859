#include "train/autoencoder_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/counted_random.h"
#include "engine/engine.h"

namespace flux2 {
namespace {

struct ToyAutoencoder {
  ToyAutoencoder() : engine({.device = "cpu", .threads = 2, .profile = Profile::Exact}) {
    session = engine.open_session(engine.random_model("tiny", {.transformer = false, .text_encoder = false}));
    vae = std::make_unique<Vae>(*session->models.vae);
    vae->visit([&](const Parameter& p) {
      const std::vector<float> values = p.tensor.to_floats();
      p.tensor = Tensor::from(*session->stream, DType::F32, p.tensor.shape(), std::span<const float>(values));
    });
  }
  Stream& stream() const { return *session->stream; }

  // Images that differ by the sample.
  static LoadedBatch batch(const std::vector<uint64_t>& samples) {
    LoadedBatch b;
    b.plan.size = {1, 2};
    for (const uint64_t s : samples) {
      b.plan.samples.push_back({.item = 0, .index = s});
      b.loss_multiplier.push_back(1);
      for (int i = 0; i < 16 * 32 * 3; ++i) b.pixels.push_back(static_cast<float>(std::sin(0.05 * i + double(s))));
    }
    return b;
  }
  // A copy whose weights are leaves, listed with their directions.
  Vae recorded(std::vector<Tensor>& leaves) const {
    Vae copy = *vae;
    copy.visit([&](const Parameter& p) {
      if (p.kind == ParameterKind::Statistic) return;
      p.tensor = parameter(p.tensor.cloned());
      leaves.push_back(p.tensor);
    });
    return copy;
  }

  Engine engine;
  std::unique_ptr<ModelSession> session;
  std::unique_ptr<Vae> vae;
};

TEST(AutoencoderStep, GradientIsTheSlopeOfTheLoss) {
  const ToyAutoencoder toy;
  // Square terms only: |d| has no slope where d changes its sign, and this test steps over such places.
  const AutoencoderStep step(toy.stream(), {.seed = 3, .loss = {0, 2, 0, 0.1}});
  const LoadedBatch batch = ToyAutoencoder::batch({4, 9});
  std::vector<Tensor> leaves;
  const Vae vae = toy.recorded(leaves);
  const AutoencoderStep::Result result = step.train(vae, batch, 2);
  double slope = 0;
  std::vector<std::vector<float>> values, directions;
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_TRUE(result.gradients.contains(leaves[i])) << i;
    values.push_back(leaves[i].to_floats());
    directions.emplace_back(values.back().size());
    CountedRandom(1, 2, i).normals(directions.back());
    const std::vector<float> gradient = result.gradients[leaves[i]].to_floats();
    for (size_t j = 0; j < gradient.size(); ++j) slope += double{gradient[j]} * directions[i][j];
  }
  const auto loss_at = [&](double h) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      std::vector<float> moved = values[i];
      for (size_t j = 0; j < moved.size(); ++j) moved[j] += static_cast<float>(h * directions[i][j]);
      leaves[i].detached().copy_from(Tensor::from(toy.stream(), DType::F32, leaves[i].shape(), std::span<const float>(moved)));
    }
    const std::vector<double> losses = step.train(vae, batch, 2).losses;
    return (losses[0] + losses[1]) / 2;
  };
  const double h = 1e-4, expected = (loss_at(h) - loss_at(-h)) / (2 * h);
  EXPECT_NEAR(slope, expected, 2e-2 * std::abs(expected)) << slope << " " << expected;
}

TEST(AutoencoderStep, LossIsTheSumOfItsTerms) {
  const ToyAutoencoder toy;
  const LoadedBatch batch = ToyAutoencoder::batch({1});
  const auto loss = [&](AutoencoderLoss weights) {
    return AutoencoderStep(toy.stream(), {.loss = weights}).reconstruct(*toy.vae, batch).losses[0];
  };
  // By hand, from the reconstruction itself.
  const Tensor image = Tensor::from(toy.stream(), DType::F32, {1, 16, 32, 3}, std::span<const float>(batch.pixels));
  const Tensor moments = toy.vae->encode_moments(image);
  const std::vector<float> m = moments.to_floats();
  const std::vector<float> made = toy.vae->decode_latents(moments.narrowed(3, 0, 32).contiguous()).to_floats();
  double l1 = 0, mse = 0, across = 0, down = 0, kl = 0;
  const auto d = [&](int y, int x, int c) {
    const auto at = static_cast<size_t>((y * 32 + x) * 3 + c);
    return double{made[at]} - batch.pixels[at];
  };
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 32; ++x)
      for (int c = 0; c < 3; ++c) {
        l1 += std::abs(d(y, x, c)) / (16 * 32 * 3);
        mse += d(y, x, c) * d(y, x, c) / (16 * 32 * 3);
        if (x > 0) across += std::abs(d(y, x, c) - d(y, x - 1, c)) / (16 * 31 * 3);
        if (y > 0) down += std::abs(d(y, x, c) - d(y - 1, x, c)) / (15 * 32 * 3);
      }
  const size_t positions = m.size() / 64;
  for (size_t i = 0; i < positions; ++i)
    for (size_t c = 0; c < 32; ++c) {
      const double mean = m[i * 64 + c], log_variance = m[i * 64 + 32 + c];
      kl += 0.5 * (mean * mean + std::exp(log_variance) - log_variance - 1) / static_cast<double>(positions * 32);
    }
  EXPECT_NEAR(loss({1, 0, 0, 0}), l1, 1e-5 * l1);
  EXPECT_NEAR(loss({0, 1, 0, 0}), mse, 1e-5 * mse);
  EXPECT_NEAR(loss({0, 0, 1, 0}), across + down, 1e-5 * (across + down));
  EXPECT_NEAR(loss({0, 0, 0, 1}), kl, 1e-5 * kl);
  const double all = l1 + 2 * mse + 0.5 * (across + down) + 2e-5 * kl;
  EXPECT_NEAR(loss({}), all, 1e-5 * all);
}

TEST(AutoencoderStep, SamplesDoNotDependOnTheirBatch) {
  const ToyAutoencoder toy;
  const AutoencoderStep step(toy.stream(), {.seed = 3});
  std::vector<Tensor> leaves;
  const Vae vae = toy.recorded(leaves);
  const auto both = step.train(vae, ToyAutoencoder::batch({4, 9}), 1), first = step.train(vae, ToyAutoencoder::batch({4}), 1),
             second = step.train(vae, ToyAutoencoder::batch({9}), 1);
  EXPECT_NEAR(both.losses[0], first.losses[0], 1e-6 * first.losses[0]);
  EXPECT_NEAR(both.losses[1], second.losses[0], 1e-6 * second.losses[0]);
  double difference = 0, size = 0;
  for (const Tensor& leaf : leaves) {
    const auto sum = both.gradients[leaf].to_floats(), a = first.gradients[leaf].to_floats(),
               b = second.gradients[leaf].to_floats();
    for (size_t i = 0; i < sum.size(); ++i) {
      difference += std::pow(double{sum[i]} - a[i] - b[i], 2);
      size += double{sum[i]} * sum[i];
    }
  }
  EXPECT_LE(std::sqrt(difference / size), 1e-5);
}

TEST(AutoencoderStep, ReconstructionsHaveAQuality) {
  const ToyAutoencoder toy;
  const LoadedBatch batch = ToyAutoencoder::batch({1, 2});
  const auto r = AutoencoderStep(toy.stream(), {}).reconstruct(*toy.vae, batch);
  ASSERT_EQ(r.images.size(), 2u);
  EXPECT_EQ(r.originals[0].width, 32);
  EXPECT_EQ(r.originals[0].height, 16);
  for (size_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (size_t j = 0; j < r.images[i].pixels.size(); ++j)
      sum += std::pow((double(r.images[i].pixels[j]) - double(r.originals[i].pixels[j])) / 255.0, 2);
    EXPECT_NEAR(r.psnr[i], -10 * std::log10(sum / static_cast<double>(r.images[i].pixels.size())), 1e-9);
  }
}

TEST(LatentStatistics, NormaliseTheLatentsOfTheSet) {
  const ToyAutoencoder toy;
  DatasetConfig config;
  config.batch_size = 2;
  std::vector<CachedItem> items(3);
  for (CachedItem& item : items) item.size = {1, 2};
  const TrainingSet data({config}, {}, items, [](const BatchPlan& plan) {
    LoadedBatch b;
    b.plan = plan;
    for (const Sample& s : plan.samples)
      for (int i = 0; i < 16 * 32 * 3; ++i) b.pixels.push_back(static_cast<float>(std::sin(0.07 * i * double(s.item + 1))));
    return b;
  });
  const LatentStatistics s = measure_latents(*toy.vae, data, 5, 100, toy.stream(), DType::F32);
  EXPECT_EQ(s.images, 3);
  Vae vae = *toy.vae;
  vae.running_mean = Tensor::from<double>(toy.stream(), DType::F32, {128}, s.mean);
  vae.running_var = Tensor::from<double>(toy.stream(), DType::F32, {128}, s.variance);
  std::vector<double> sums(128), squares(128);
  double count = 0;
  for (const BatchPlan& plan : data.epoch(5, 0)) {
    const LoadedBatch b = data.load(plan);
    const Tensor image = Tensor::from(toy.stream(), DType::F32, {b.size(), 16, 32, 3}, std::span<const float>(b.pixels));
    const std::vector<float> latents = vae.encode(image).to_floats();
    for (size_t i = 0; i < latents.size(); ++i) {
      sums[i % 128] += latents[i];
      squares[i % 128] += double{latents[i]} * latents[i];
    }
    count += static_cast<double>(latents.size() / 128);
  }
  for (size_t c = 0; c < 128; ++c) {
    EXPECT_NEAR(sums[c] / count, 0, 1e-4) << c;
    EXPECT_NEAR(squares[c] / count, s.variance[c] / (s.variance[c] + 1e-4), 1e-3) << c;
  }
  EXPECT_EQ(measure_latents(*toy.vae, data, 5, 2, toy.stream(), DType::F32).images, 2);
}

}  // namespace
}  // namespace flux2
