#include "model/tiny_decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/conv2d.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr Padding kEdge = {1, 1, 1, 1};
constexpr int kPoolGroups = 4;
constexpr float kPoolEps = 1e-5f;
constexpr int64_t kMostWidth = 1024;

// Blocks of each stage. Between two stages lie an enlarging layer without weights and a convolution.
constexpr std::array kStageBlocks = {3, 3, 3, 1};

Tensor relu(const Tensor& x) { return 0.5 * (x + abs(x)); }

Tensor filtered3x3(const TinyDecoder::Filter& f, const Tensor& x) { return conv2d(x, f.weight, f.bias, 1, kEdge); }
Tensor filtered1x1(const TinyDecoder::Filter& f, const Tensor& x) { return conv2d(x, f.weight, f.bias, 1, {}); }

Tensor run(const TinyDecoder::Block& block, Tensor x) {
  if (const auto& pool = block.pool) {
    const Tensor wide = group_norm(filtered1x1(pool->widen, x), pool->norm_weight, pool->norm_bias, kPoolGroups, kPoolEps);
    x = x + filtered1x1(pool->narrow, relu(wide));
  }
  Tensor y = relu(filtered3x3(block.convs[0], x));
  y = relu(filtered3x3(block.convs[1], y));
  return relu(x + filtered3x3(block.convs[2], y));
}

class TinyLoader {
 public:
  TinyLoader(const WeightSource& source, Stream& stream, DType dtype) : source_(source), stream_(stream), dtype_(dtype) {}

  // A convolution [out, in, size, size] of the file as [out, size, size, in].
  TinyDecoder::Filter filter(const std::string& name, int64_t out, int64_t in, int64_t size, bool has_bias) const {
    const std::vector<float> stored = values(name + ".weight", {out, in, size, size});
    std::vector<float> rows;
    for (int64_t o = 0; o < out; ++o)
      for (int64_t tap = 0; tap < size * size; ++tap)
        for (int64_t i = 0; i < in; ++i) rows.push_back(stored[static_cast<size_t>((o * in + i) * size * size + tap)]);
    TinyDecoder::Filter f{Tensor::from<float>(stream_, dtype_, {out, size, size, in}, rows), {}};
    if (has_bias) f.bias = vector(name + ".bias", out);
    return f;
  }
  Tensor vector(const std::string& name, int64_t count) const {
    return Tensor::from<float>(stream_, dtype_, {count}, values(name, {count}));
  }
  TinyDecoder::Block block(const std::string& name, int64_t width) const {
    TinyDecoder::Block b;
    for (int k = 0; k < 3; ++k)
      b.convs[static_cast<size_t>(k)] = filter(fmt::format("{}.conv.{}", name, 2 * k), width, width, 3, true);
    if (source_.find(name + ".pool.0.weight"))
      b.pool = TinyDecoder::Block::Pool{.widen = filter(name + ".pool.0", 4 * width, width, 1, false),
                                        .narrow = filter(name + ".pool.3", width, 4 * width, 1, false),
                                        .norm_weight = vector(name + ".pool.1.weight", 4 * width),
                                        .norm_bias = vector(name + ".pool.1.bias", 4 * width)};
    return b;
  }

 private:
  std::vector<float> values(const std::string& name, const Shape& shape) const {
    const StoredTensor* stored = source_.find(name);
    if (!stored) fail(ErrorCode::Incompatible, "{}: the tiny autoencoder has no tensor {}", source_.description(), name);
    if (stored->shape != shape)
      fail(ErrorCode::Incompatible, "{}: {} has shape {}; a tiny autoencoder for FLUX.2 has {}", source_.description(), name,
           stored->shape, shape);
    return source_.open(name).to_floats();
  }

  const WeightSource& source_;
  Stream& stream_;
  DType dtype_;
};

}  // namespace

float TinyDecoder::clamped(float latent) { return 3 * std::tanh(latent / 3); }

Tensor TinyDecoder::operator()(const Tensor& latents) const {
  Tensor x = relu(filtered3x3(first, cast(latents, activations)));
  for (const Stage& stage : stages) {
    if (stage.enlarge) x = upsample_conv2d(x, stage.enlarge->weight, stage.enlarge->bias);
    for (const Block& block : stage.blocks) x = run(block, x);
  }
  return cast(filtered3x3(last, x), DType::F32);
}

std::optional<TinyDecoderNames> find_tiny_decoder(const WeightSource& weights) {
  for (TinyDecoderNames names : {TinyDecoderNames{"decoder.layers.", 0, 0}, TinyDecoderNames{"decoder.", 1, 0}}) {
    const StoredTensor* first = weights.find(names.layer(0) + ".weight");
    if (!first || first->shape.rank() != 4) continue;
    names.channels = first->shape[1];
    return names;
  }
  return std::nullopt;
}

TinyDecoder load_tiny_decoder(const WeightSource& weights, Stream& stream, DType activations) {
  const auto names = find_tiny_decoder(weights);
  if (!names) fail(ErrorCode::Incompatible, "{}: this is not a tiny autoencoder", weights.description());
  const int64_t width = weights.find(names->layer(0) + ".weight")->shape[0];
  check(width >= 1 && width <= kMostWidth, "{}: a tiny autoencoder of width {} is not supported", weights.description(), width);
  const TinyLoader loader(weights, stream, activations);
  TinyDecoder decoder;
  decoder.activations = activations;
  decoder.first = loader.filter(names->layer(0), width, kTinyDecoderChannels, 3, true);
  int layer = 2;  // after the convolution and its relu
  for (const int blocks : kStageBlocks) {
    TinyDecoder::Stage stage;
    if (layer > 2) {
      ++layer;  // enlarges, without weights
      stage.enlarge = loader.filter(names->layer(layer++), width, width, 3, false);
    }
    for (int k = 0; k < blocks; ++k) stage.blocks.push_back(loader.block(names->layer(layer++), width));
    decoder.stages.push_back(std::move(stage));
  }
  decoder.last = loader.filter(names->layer(layer), 3, width, 3, true);
  stream.wait();
  return decoder;
}

}  // namespace flux2
