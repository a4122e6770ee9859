#include "pipeline/enlarge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "image/resize.h"
#include "tests/support/random_upscaler.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// The network as its equations say, in double, channels last.
class Reference {
 public:
  struct Grid {
    int64_t height = 0, width = 0, channels = 0;
    std::vector<double> v;
    double at(int64_t y, int64_t x, int64_t c) const { return v[static_cast<size_t>((y * width + x) * channels + c)]; }
  };

  Reference(const UpscalerConfig& config, const std::vector<std::pair<std::string, Tensor>>& tensors) : config_(config) {
    for (const auto& [name, tensor] : tensors) tensors_[name] = {tensor.shape(), tensor.to_doubles()};
  }

  Grid operator()(const Grid& picture) const {
    const int64_t k = config_.fold();
    Grid x{picture.height / k, picture.width / k, 3 * k * k, {}};
    for (int64_t y = 0; y < x.height; ++y)
      for (int64_t j = 0; j < x.width; ++j)
        for (int64_t c = 0; c < x.channels; ++c) {
          const int64_t dy = c % (k * k) / k, dx = c % k;
          x.v.push_back(picture.at(y * k + dy, j * k + dx, c / (k * k)));
        }
    const bool older = config_.older_names;
    const Grid f = conv(x, older ? "model.0" : "conv_first");
    Grid b = f;
    for (int i = 0; i < config_.blocks; ++i) {
      Grid inner = b;
      for (int m = 1; m <= 3; ++m) {
        Grid seen = inner;
        for (int c = 1; c <= 5; ++c) {
          const std::string name =
              older ? fmt::format("model.1.sub.{}.RDB{}.conv{}.0", i, m, c) : fmt::format("body.{}.rdb{}.conv{}", i, m, c);
          const Grid y = conv(seen, name);
          if (c < 5) seen = joined(seen, leaky(y));
          else inner = sum(inner, y, 0.2);
        }
      }
      b = sum(b, inner, 0.2);
    }
    b = sum(f, conv(b, older ? fmt::format("model.1.sub.{}", config_.blocks) : "conv_body"), 1.0);
    b = leaky(conv(doubled(b), older ? "model.3" : "conv_up1"));
    b = leaky(conv(doubled(b), older ? "model.6" : "conv_up2"));
    return conv(leaky(conv(b, older ? "model.8" : "conv_hr")), older ? "model.10" : "conv_last");
  }

 private:
  Grid conv(const Grid& x, const std::string& name) const {
    const auto& [shape, w] = tensors_.at(name + ".weight");
    const auto& bias = tensors_.at(name + ".bias").second;
    Grid y{x.height, x.width, shape[0], {}};
    for (int64_t i = 0; i < x.height; ++i)
      for (int64_t j = 0; j < x.width; ++j)
        for (int64_t o = 0; o < shape[0]; ++o) {
          double total = bias[static_cast<size_t>(o)];
          for (int64_t u = 0; u < 3; ++u)
            for (int64_t v = 0; v < 3; ++v) {
              const int64_t r = i + u - 1, s = j + v - 1;
              if (r < 0 || r >= x.height || s < 0 || s >= x.width) continue;
              for (int64_t c = 0; c < x.channels; ++c)
                total += x.at(r, s, c) * w[static_cast<size_t>(((o * x.channels + c) * 3 + u) * 3 + v)];
            }
          y.v.push_back(total);
        }
    return y;
  }
  static Grid leaky(Grid x) {
    for (double& v : x.v) v = v >= 0 ? v : 0.2 * v;
    return x;
  }
  static Grid sum(Grid a, const Grid& b, double factor) {
    for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += factor * b.v[i];
    return a;
  }
  static Grid joined(const Grid& a, const Grid& b) {
    Grid y{a.height, a.width, a.channels + b.channels, {}};
    for (int64_t i = 0; i < a.height * a.width; ++i) {
      y.v.insert(y.v.end(), a.v.begin() + i * a.channels, a.v.begin() + (i + 1) * a.channels);
      y.v.insert(y.v.end(), b.v.begin() + i * b.channels, b.v.begin() + (i + 1) * b.channels);
    }
    return y;
  }
  static Grid doubled(const Grid& x) {
    Grid y{2 * x.height, 2 * x.width, x.channels, {}};
    for (int64_t i = 0; i < y.height; ++i)
      for (int64_t j = 0; j < y.width; ++j)
        for (int64_t c = 0; c < x.channels; ++c) y.v.push_back(x.at(i / 2, j / 2, c));
    return y;
  }

  UpscalerConfig config_;
  std::map<std::string, std::pair<Shape, std::vector<double>>> tensors_;
};

Image smooth_picture(int width, int height) {
  Image image(width, height, 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.at(x, y)[c] =
            static_cast<uint8_t>(127.5 + 90 * std::sin(0.11 * x + 0.07 * y + c) + 30 * std::sin(0.9 * x * (c + 1)));
  return image;
}

class Enlarge : public ::testing::Test {
 protected:
  Upscaler network(const UpscalerConfig& config, Profile profile = Profile::Exact, DType weights = DType::F32) {
    device_ = open_cpu({.threads = 2, .profile = profile});
    stream_ = device_->open_stream();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const fs::path file = fs::path(::testing::TempDir()) / "flux2_enlarge" / test->name() / "file.safetensors";
    const auto source = open_weights(test::write_random_upscaler(file, config));
    return load_upscaler(*source, detect_upscaler(*source), {.stream = *stream_, .weights = weights});
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<Stream> stream_;
};

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int most = 0;
  for (size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i)
    most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return most;
}

TEST_F(Enlarge, AgreesWithTheEquations) {
  for (int scale : {1, 2, 4})
    for (bool older : {false, true}) {
      const UpscalerConfig config{.scale = scale, .blocks = 2, .width = 12, .growth = 5, .older_names = older};
      const Upscaler upscaler = network(config);
      Reference::Grid picture{8, 12, 3, {}};
      for (int i = 0; i < 8 * 12 * 3; ++i) picture.v.push_back(0.5 + 0.5 * std::sin(1.7 * i));
      const auto want = Reference(config, test::random_upscaler_tensors(config))(picture);
      const Tensor x = Tensor::from<double>(*stream_, DType::F32, {1, 8, 12, 3}, picture.v);
      const Tensor y = upscaler(x);
      ASSERT_EQ(y.shape(), (Shape{1, 8 * scale, 12 * scale, 3}));
      const auto got = y.to_doubles();
      double error = 0, size = 0;
      for (size_t i = 0; i < got.size(); ++i) error += std::pow(got[i] - want.v[i], 2), size += want.v[i] * want.v[i];
      EXPECT_LT(std::sqrt(error / size), 1e-5) << "x" << scale << (older ? ", older names" : "");
    }
}

// Both forms of a dense block compute the same.
TEST_F(Enlarge, SortedByInputIsTheSameAsByConvolution) {
  const UpscalerConfig config{.blocks = 1, .width = 16, .growth = 8};
  const Upscaler upscaler = network(config);
  const auto tensors = test::random_upscaler_tensors(config);
  std::map<std::string, Tensor> named(tensors.begin(), tensors.end());
  DenseBlock plain;
  plain.growth = config.growth;
  for (size_t k = 0; k < 5; ++k) {
    const std::string name = fmt::format("body.0.rdb1.conv{}", k + 1);
    const Tensor& w = named.at(name + ".weight");
    const auto stored = w.to_floats(), bias = named.at(name + ".bias").to_floats();
    std::vector<float> rows, scaled_bias;
    for (int64_t o = 0; o < w.dim(0); ++o)
      for (int64_t tap = 0; tap < 9; ++tap)
        for (int64_t i = 0; i < w.dim(1); ++i)
          rows.push_back((k == 4 ? 0.2f : 1.0f) * (i < 16 ? 1.0f : 0.6f) *
                         stored[static_cast<size_t>((o * w.dim(1) + i) * 9 + tap)]);
    for (float b : bias) scaled_bias.push_back((k == 4 ? 0.2f : 1.0f) * b);
    plain.weights[k] = Tensor::from<float>(*stream_, DType::F32, {w.dim(0), 3, 3, w.dim(1)}, rows);
    plain.biases[k] = Tensor::from<float>(*stream_, DType::F32, {w.dim(0)}, scaled_bias);
  }
  std::vector<float> values;
  for (int i = 0; i < 7 * 9 * 16; ++i) values.push_back(std::sin(0.37f * static_cast<float>(i)));
  const Tensor x = Tensor::from<float>(*stream_, DType::F32, {1, 7, 9, 16}, values);
  ASSERT_TRUE(upscaler.blocks[0].by_input);
  const auto a = upscaler.blocks[0](x).to_floats(), b = plain(x).to_floats();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST_F(Enlarge, TilesDifferByAtMostOneLevel) {
  for (int scale : {1, 2, 4}) {
    const Upscaler upscaler = network({.scale = scale, .blocks = 3, .width = 16, .growth = 8});
    const Image picture = smooth_picture(151, 97);
    const Image whole = enlarge(upscaler, *stream_, picture, {.tile = 512});
    EXPECT_EQ(whole.width, 151 * scale);
    EXPECT_EQ(whole.height, 97 * scale);
    int reported = 0, all = 0;
    const Image tiled = enlarge(upscaler, *stream_, picture, {.tile = 64, .report = [&](int done, int of) {
                                                                EXPECT_GE(done, reported);
                                                                reported = done, all = of;
                                                              }});
    EXPECT_LE(largest_difference(whole, tiled), 1) << "x" << scale;
    EXPECT_EQ(reported, all);
    EXPECT_EQ(all, 2 * 3 * 4) << "6 tiles of 3 blocks and what follows";
  }
}

// Bands of rows after the blocks change nothing.
TEST_F(Enlarge, BandsAreExact) {
  const Upscaler upscaler = network({.blocks = 1, .width = 64, .growth = 4});
  std::vector<float> values;
  for (int i = 0; i < 44 * 600 * 64; ++i) values.push_back(std::sin(0.013f * static_cast<float>(i % 9973)));
  const Tensor features = Tensor::from<float>(*stream_, DType::F32, {1, 44, 600, 64}, values);  // 2.4 MB a row: 40 and 4 rows
  const auto bands = upscaler.enlarge_features(features).to_floats();
  const auto one = upscaler.enlarge_features(features.narrowed(1, 20, 24)).to_floats();  // one band
  const size_t row = 4 * 4 * 600 * 3;                                                    // of features
  for (size_t i = 22 * row; i < 44 * row; ++i) ASSERT_EQ(bands[i], one[i - 20 * row]) << i;
}

TEST_F(Enlarge, RoundedWeightsStayClose) {
  const Upscaler upscaler = network({.blocks = 2, .width = 16, .growth = 8}, Profile::Fast, DType::BF16);
  const Image fast = enlarge(upscaler, *stream_, smooth_picture(40, 33));
  const Upscaler exact = network({.blocks = 2, .width = 16, .growth = 8});
  EXPECT_LE(largest_difference(fast, enlarge(exact, *stream_, smooth_picture(40, 33))), 3);
}

TEST_F(Enlarge, KeepsTransparency) {
  const Upscaler upscaler = network({.scale = 2, .blocks = 1, .width = 8, .growth = 4});
  const Image rgb = smooth_picture(21, 13);
  Image image(21, 13, 4), alpha(21, 13, 1);
  for (int i = 0; i < 21 * 13; ++i) {
    const auto at = static_cast<size_t>(i);
    std::copy_n(&rgb.pixels[3 * at], 3, &image.pixels[4 * at]);
    alpha.pixels[at] = image.pixels[4 * at + 3] = static_cast<uint8_t>(i);
  }
  const Image large = enlarge(upscaler, *stream_, image), plain = enlarge(upscaler, *stream_, rgb);
  ASSERT_EQ(large.channels, 4);
  const Image expected = resize(alpha, 42, 26);
  for (size_t i = 0; i < expected.pixels.size(); ++i) {
    ASSERT_EQ(large.pixels[4 * i + 3], expected.pixels[i]);
    ASSERT_EQ(large.pixels[4 * i], plain.pixels[3 * i]);
  }
}

TEST_F(Enlarge, StopsWhenAskedTo) {
  const Upscaler upscaler = network({.blocks = 3, .width = 8, .growth = 4});
  int asked = 0;
  try {
    enlarge(upscaler, *stream_, smooth_picture(30, 30), {.cancelled = [&] { return ++asked == 3; }});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Cancelled);
  }
  EXPECT_EQ(asked, 3);
  EXPECT_THROW(enlarge(upscaler, *stream_, smooth_picture(30, 30), {.tile = 8}), Error);
}

}  // namespace
}  // namespace flux2
