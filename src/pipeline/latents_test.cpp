#include "pipeline/latents.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "base/counted_random.h"
#include "model/vae.h"

namespace flux2 {
namespace {

TEST(Latents, TokensAndPlanes) {
  const std::vector<float> planes = {1, 2, 3, 10, 20, 30};  // two channels of three positions
  const auto tokens = to_tokens(planes, 2);
  EXPECT_EQ(tokens, (std::vector<float>{1, 10, 2, 20, 3, 30}));
  EXPECT_EQ(to_planes(tokens, 2), planes);
}

TEST(Latents, Positions) {
  const auto text = text_positions(3);
  EXPECT_EQ(text[2].l, 2);
  EXPECT_EQ(text[2].t + text[2].h + text[2].w, 0);
  const auto picture = picture_positions(2, 3, 10);
  ASSERT_EQ(picture.size(), 6u);
  EXPECT_EQ(picture[4].h, 1);
  EXPECT_EQ(picture[4].w, 1);
  EXPECT_EQ(picture[4].t, 10);
}

// An autoencoder with random weights; the same ones whatever the groups of its norms are.
Vae random_vae(Stream& stream, int norm_groups) {
  Vae vae{VaeConfig{.encoder_widths = {32, 32, 32, 32}, .decoder_widths = {32, 32, 32, 32}, .norm_groups = norm_groups}};
  uint64_t number = 0;
  vae.visit([&](const Parameter& p) {
    std::vector<float> values(static_cast<size_t>(p.shape.numel()));
    CountedRandom(1, 1, ++number).normals(values);
    for (float& v : values) v = p.kind == ParameterKind::Statistic ? 1.0f + 0.1f * std::abs(v) : 0.1f * v;
    Shape shape = p.shape;
    if (p.kind == ParameterKind::Conv) shape = {p.shape[0], p.shape[2], p.shape[3], p.shape[1]};
    p.tensor = Tensor::from<float>(stream, DType::F32, shape, values);
  });
  return vae;
}

TEST(Latents, ANormOverOneChannelRemovesTheColourOfAPlainImage) {
  const auto stream = open_cpu()->open_stream();
  // The decoder's last norm on the features of a plain image, which are constant in each channel.
  const auto normed = [&](const Vae& vae, float colour) {
    std::vector<float> features(4 * 4 * 32);
    for (size_t i = 0; i < features.size(); ++i) features[i] = colour * static_cast<float>(1 + i % 32 % 5);
    return vae.decoder.norm_out(Tensor::from<float>(*stream, DType::F32, {1, 4, 4, 32}, features)).to_floats();
  };
  const auto differs = [&](int groups) {
    const Vae vae = random_vae(*stream, groups);
    const std::vector<float> a = normed(vae, 1), b = normed(vae, -2);
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    return largest;
  };
  EXPECT_LT(differs(32), 1e-3);
  EXPECT_GT(differs(8), 0.05);
}

TEST(Latents, ImagesAreEncodedTogetherAsOneByOne) {
  const auto stream = open_cpu()->open_stream();
  const Vae vae = random_vae(*stream, 8);
  std::vector<Image> images(2, Image(48, 32, 3));
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < images[i].pixels.size(); ++k) images[i].pixels[k] = static_cast<uint8_t>((k * (7 + i)) % 256);
  const std::vector<float> together = encoded_images(vae, *stream, DType::F32, images);
  ASSERT_EQ(together.size(), 2u * 128 * 2 * 3);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<float> pixels;
    for (const uint8_t value : images[i].pixels) pixels.push_back(static_cast<float>(value) / 127.5f - 1.0f);
    const Tensor tokens = vae.encode(Tensor::from<float>(*stream, DType::F32, {1, 32, 48, 3}, pixels));
    const std::vector<float> alone = to_planes(tokens.to_floats(), 128);
    for (size_t k = 0; k < alone.size(); ++k) ASSERT_NEAR(together[i * alone.size() + k], alone[k], 1e-4) << i << " " << k;
  }
}

TEST(Latents, EnlargingKeepsRampsAndFlatAreas) {
  // Statistics that differ between the channels of one 2×2 block: a flat latent must stay flat all the same.
  const auto stream = open_cpu()->open_stream();
  Vae vae{VaeConfig{}};
  std::vector<float> mean(128), variance(128);
  for (size_t c = 0; c < 128; ++c)
    mean[c] = 0.01f * static_cast<float>(c), variance[c] = 0.5f + 0.02f * static_cast<float>(c % 7);
  vae.running_mean = Tensor::from<float>(*stream, DType::F32, {128}, mean);
  vae.running_var = Tensor::from<float>(*stream, DType::F32, {128}, variance);
  const auto deviation = [&](size_t c) { return std::sqrt(variance[c] + VaeConfig::kStatisticsEps); };
  constexpr int64_t kRows = 4, kColumns = 6;
  // Channel c of the unpacked latents is c + 0.1 · x at column x.
  const auto packed = [&](int64_t rows, int64_t columns, const auto& value) {
    std::vector<float> out(static_cast<size_t>(128 * rows * columns));
    for (size_t c = 0; c < 128; ++c)
      for (int64_t y = 0; y < rows; ++y)
        for (int64_t x = 0; x < columns; ++x)
          out[c * static_cast<size_t>(rows * columns) + static_cast<size_t>(y * columns + x)] =
              (value(c / 4, static_cast<double>(2 * x + static_cast<int64_t>(c % 2))) - mean[c]) / deviation(c);
    return out;
  };
  const auto ramp =
      packed(kRows, kColumns, [](size_t c, double x) { return static_cast<float>(static_cast<double>(c) + 0.1 * x); });
  const auto large = enlarged_latents(vae, ramp, kRows, kColumns, 2 * kRows, 2 * kColumns);
  const auto expected = packed(2 * kRows, 2 * kColumns, [](size_t c, double x) {
    return static_cast<float>(static_cast<double>(c) + 0.1 * ((x + 0.5) / 2 - 0.5));
  });
  ASSERT_EQ(large.size(), expected.size());
  for (size_t c = 0; c < 128; ++c)
    for (int64_t y = 0; y < 2 * kRows; ++y)
      for (int64_t x = 2; x < 2 * kColumns - 2; ++x) {  // at the ends the ramp does not continue
        const size_t i = c * static_cast<size_t>(4 * kRows * kColumns) + static_cast<size_t>(y * 2 * kColumns + x);
        ASSERT_NEAR(large[i], expected[i], 2e-5) << c << " " << y << " " << x;
      }
}

}  // namespace
}  // namespace flux2
