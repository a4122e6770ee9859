#include "model/tiny_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "weights/safetensors_writer.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// An image [height, width, channels] in double.
struct Grid {
  int64_t height, width, channels;
  std::vector<double> v;
  double& at(int64_t y, int64_t x, int64_t c) { return v[static_cast<size_t>((y * width + x) * channels + c)]; }
};

// The network written a second time, with plain loops over the tensors of the file.
class PlainDecoder {
 public:
  PlainDecoder(const WeightSource& source, std::string prefix, int offset)
      : source_(source), prefix_(std::move(prefix)), offset_(offset) {}

  Grid run(Grid x) const {
    for (double& v : x.v) v = 3 * std::tanh(v / 3);
    x = relu(conv(x, 0, ""));
    int layer = 2;
    for (const int blocks : {3, 3, 3, 1}) {
      if (layer > 2) {
        x = twice(x);
        layer += 1;
        x = conv(x, layer++, "");
      }
      for (int k = 0; k < blocks; ++k, ++layer) {
        if (has(layer, ".pool.0.weight")) x = sum(x, conv(relu(norm(conv(x, layer, ".pool.0"), layer)), layer, ".pool.3"));
        x = relu(sum(x, conv(relu(conv(relu(conv(x, layer, ".conv.0")), layer, ".conv.2")), layer, ".conv.4")));
      }
    }
    return conv(x, layer, "");
  }

 private:
  std::string name(int layer, const std::string& rest) const { return prefix_ + std::to_string(layer + offset_) + rest; }
  bool has(int layer, const std::string& rest) const { return source_.find(name(layer, rest)) != nullptr; }
  Grid conv(Grid x, int layer, const std::string& rest) const {
    const Tensor weight = source_.open(name(layer, rest + ".weight"));
    const std::vector<float> w = weight.to_floats();
    std::vector<float> bias(static_cast<size_t>(weight.dim(0)));
    if (has(layer, rest + ".bias")) bias = source_.open(name(layer, rest + ".bias")).to_floats();
    const int64_t in = weight.dim(1), size = weight.dim(2), half = size / 2;
    Grid y{x.height, x.width, weight.dim(0), {}};
    for (int64_t r = 0; r < x.height; ++r)
      for (int64_t c = 0; c < x.width; ++c)
        for (int64_t o = 0; o < y.channels; ++o) {
          double value = bias[static_cast<size_t>(o)];
          for (int64_t dy = 0; dy < size; ++dy)
            for (int64_t dx = 0; dx < size; ++dx) {
              const int64_t yy = r + dy - half, xx = c + dx - half;
              if (yy < 0 || yy >= x.height || xx < 0 || xx >= x.width) continue;
              for (int64_t i = 0; i < in; ++i)
                value += x.at(yy, xx, i) * static_cast<double>(w[static_cast<size_t>(((o * in + i) * size + dy) * size + dx)]);
            }
          y.v.push_back(value);
        }
    return y;
  }
  Grid norm(Grid x, int layer) const {
    const auto w = source_.open(name(layer, ".pool.1.weight")).to_floats(),
               b = source_.open(name(layer, ".pool.1.bias")).to_floats();
    const int64_t group = x.channels / 4, pixels = x.height * x.width;
    for (int64_t g = 0; g < 4; ++g) {
      double mean = 0, square = 0;
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < group; ++c) {
          const double v = x.v[static_cast<size_t>(p * x.channels + g * group + c)];
          mean += v, square += v * v;
        }
      const double count = static_cast<double>(pixels * group);
      mean /= count;
      const double scale = 1 / std::sqrt(square / count - mean * mean + 1e-5);
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = g * group; c < (g + 1) * group; ++c) {
          double& v = x.v[static_cast<size_t>(p * x.channels + c)];
          v = (v - mean) * scale * static_cast<double>(w[static_cast<size_t>(c)]) +
              static_cast<double>(b[static_cast<size_t>(c)]);
        }
    }
    return x;
  }
  static Grid relu(Grid x) {
    for (double& v : x.v) v = std::max(v, 0.0);
    return x;
  }
  static Grid sum(Grid a, const Grid& b) {
    for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i];
    return a;
  }
  static Grid twice(Grid x) {
    Grid y{2 * x.height, 2 * x.width, x.channels, {}};
    for (int64_t r = 0; r < y.height; ++r)
      for (int64_t c = 0; c < y.width; ++c)
        for (int64_t k = 0; k < x.channels; ++k) y.v.push_back(x.at(r / 2, c / 2, k));
    return y;
  }

  const WeightSource& source_;
  std::string prefix_;
  int offset_;
};

class TinyDecoders : public testing::Test {
 protected:
  TinyDecoders() { fs::create_directories(folder_); }
  ~TinyDecoders() override { fs::remove_all(folder_); }

  // A decoder of width 8 with random weights.
  std::shared_ptr<const WeightSource> file(const std::string& prefix, int offset, bool pool, int64_t channels = 32) {
    std::mt19937 bits(5);
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<std::pair<std::string, Tensor>> tensors;
    const auto add = [&](const std::string& name, const Shape& shape) {
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      const float scale = shape.rank() > 1 ? 1 / std::sqrt(static_cast<float>(shape.numel() / shape[0])) : 1;
      for (float& v : values) v = scale * draw(bits);
      tensors.emplace_back(name, Tensor::from<float>(*stream_, DType::F32, shape, values));
    };
    const auto layer = [&](int n) { return prefix + std::to_string(n + offset); };
    constexpr int64_t kWidth = 8;
    add(layer(0) + ".weight", {kWidth, channels, 3, 3}), add(layer(0) + ".bias", {kWidth});
    int at = 2;
    for (const int blocks : {3, 3, 3, 1}) {
      if (at > 2) add(layer(++at) + ".weight", {kWidth, kWidth, 3, 3}), ++at;
      for (int k = 0; k < blocks; ++k, ++at) {
        for (const char* conv : {".conv.0", ".conv.2", ".conv.4"})
          add(layer(at) + conv + ".weight", {kWidth, kWidth, 3, 3}), add(layer(at) + conv + ".bias", {kWidth});
        if (!pool || at > 4) continue;
        add(layer(at) + ".pool.0.weight", {4 * kWidth, kWidth, 1, 1}),
            add(layer(at) + ".pool.3.weight", {kWidth, 4 * kWidth, 1, 1});
        add(layer(at) + ".pool.1.weight", {4 * kWidth}), add(layer(at) + ".pool.1.bias", {4 * kWidth});
      }
    }
    add(layer(at) + ".weight", {3, kWidth, 3, 3}), add(layer(at) + ".bias", {3});
    const fs::path path = folder_ / ("tiny" + std::to_string(files_++) + ".safetensors");
    save_tensors(path, tensors);
    return open_weights(path);
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("tiny-" + std::to_string(::getpid()));
  std::shared_ptr<Stream> stream_ = open_cpu({.threads = 1})->open_stream();
  int files_ = 0;
};

TEST_F(TinyDecoders, BothStylesOfNamesEqualPlainLoops) {
  std::mt19937 bits(9);
  std::normal_distribution<float> draw(0, 1);
  Grid latents{3, 5, 32, {}};
  std::vector<float> values;
  for (int i = 0; i < 3 * 5 * 32; ++i) {
    values.push_back(draw(bits));
    latents.v.push_back(static_cast<double>(values.back()));
    values.back() = TinyDecoder::clamped(values.back());
  }
  const Tensor x = Tensor::from<float>(*stream_, DType::F32, {1, 3, 5, 32}, values);
  for (const auto& [prefix, offset] : {std::pair{"decoder.layers.", 0}, std::pair{"decoder.", 1}})
    for (const bool pool : {false, true}) {
      const auto source = file(prefix, offset, pool);
      ASSERT_EQ(find_tiny_decoder(*source)->channels, 32);
      const Tensor image = load_tiny_decoder(*source, *stream_, DType::F32)(x);
      ASSERT_EQ(image.shape(), (Shape{1, 24, 40, 3}));
      const Grid expected = PlainDecoder(*source, prefix, offset).run(latents);
      const std::vector<float> made = image.to_floats();
      double largest = 0;
      for (const double v : expected.v) largest = std::max(largest, std::abs(v));
      for (size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], expected.v[i], 1e-5 * largest) << prefix << pool << " " << i;
    }
}

TEST_F(TinyDecoders, OtherFilesAreRefused) {
  const auto flux1 = file("decoder.layers.", 0, false, 16);
  EXPECT_EQ(find_tiny_decoder(*flux1)->channels, 16);
  try {
    load_tiny_decoder(*flux1, *stream_, DType::F32);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_THAT(e.what(), HasSubstr("a tiny autoencoder for FLUX.2 has"));
  }
}

}  // namespace
}  // namespace flux2
