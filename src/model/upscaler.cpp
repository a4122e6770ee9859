#include "model/upscaler.h"

#include <algorithm>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/conv2d.h"
#include "ops/conv2d_onto.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr Padding kBorder = {1, 1, 1, 1};

// Memory of the features of a band while it is enlarged, times four.
constexpr int64_t kBandBytes = int64_t{96} << 20, kGpuBandBytes = int64_t{1} << 30;
// How far a row of the enlarged image sees into the features: rows of the features.
constexpr int64_t kBandBorder = 2;

// 5/3 · leaky_relu(x) with slope 0.2, which is x + 2/3 · |x|: two passes and one rounding. The weights that read it contain the
// factor 3/5.
Tensor leaky(const Tensor& x) {
  const Tensor positive = abs(x);
  if (x.dtype() != DType::F32) return x + (2.0 / 3.0) * positive;
  const Tensor gate = Tensor::like(x, {1, 1, x.dim(3)});
  gate.fill(2.0 / 3.0);
  const Shape pixels{1, x.dim(1) * x.dim(2), x.dim(3)};
  return reshape(gated_add(reshape(x, pixels), gate, reshape(positive, pixels)), x.shape());
}
constexpr float kLeakyFactor = 0.6f;
constexpr float kResidualFactor = 0.2f;  // of what a dense block adds

Tensor filtered(const Upscaler::Filter& f, const Tensor& x) { return conv2d(x, f.weight, f.bias, 1, kBorder); }

// k×k pixels of [1, H, W, C] become channels, c·k² + k·dy + dx.
Tensor folded(const Tensor& x, int64_t k) {
  if (k == 1) return x;
  const int64_t h = x.dim(1) / k, w = x.dim(2) / k, c = x.dim(3);
  return reshape(contiguous(permute(reshape(x, {1, h, k, w, k, c}), {0, 1, 3, 5, 2, 4})), {1, h, w, c * k * k});
}

}  // namespace

Tensor DenseBlock::operator()(const Tensor& x) const {
  const auto inner = static_cast<int>(weights.size()) - 1;
  if (!by_input) {
    const DType dtype = weights[0].dtype();
    Tensor seen = cast(x, dtype);
    for (int i = 0; i < inner; ++i) {
      const auto k = static_cast<size_t>(i);
      seen = concat({seen, leaky(conv2d(seen, weights[k], biases[k], 1, kBorder))});
    }
    return x + cast(conv2d(seen, weights.back(), biases.back(), 1, kBorder), x.dtype());
  }
  // The sums of all five convolutions side by side; each input is added to those that read it.
  const Tensor sums = conv2d(x, weights[0], biases[0], 1, kBorder);
  for (int i = 0; i < inner; ++i) {
    const int64_t first = (i + 1) * growth;
    const Tensor next = leaky(sums.narrowed(3, first - growth, growth));
    conv2d_onto(sums.narrowed(3, first, sums.dim(3) - first), next, weights[static_cast<size_t>(i) + 1]);
  }
  return x + sums.narrowed(3, inner * growth, x.dim(3));
}

Tensor Upscaler::operator()(const Tensor& picture, const BeforeBlock& before_block) const {
  const int k = config.fold();
  check(picture.rank() == 4 && picture.dim(0) == 1 && picture.dim(3) == 3 && picture.dim(1) % k == 0 && picture.dim(2) % k == 0,
        "the upscaler takes one RGB image with sides that are multiples of {}, not {}", k, picture.shape());
  const auto starts = [&](int done) {
    if (before_block) before_block(done, config.blocks + 1);
  };
  const Tensor f = cast(filtered(first, cast(folded(picture, k), activations)), DType::F32);
  Tensor x = f;
  for (int i = 0; i < config.blocks; ++i) {
    starts(i);
    const DenseBlock* dense = &blocks[3 * static_cast<size_t>(i)];
    x = x + double{kResidualFactor} * dense[2](dense[1](dense[0](x)));
  }
  starts(config.blocks);
  return enlarge_features(f + cast(filtered(body, cast(x, activations)), DType::F32));
}

Tensor Upscaler::enlarge_features(const Tensor& features) const {
  const int64_t rows = features.dim(1), columns = features.dim(2);
  const int64_t row_bytes = 16 * columns * config.width * info(activations).block_bytes;
  const int64_t most = std::max<int64_t>((features.device().is_host() ? kBandBytes : kGpuBandBytes) / row_bytes, 8);
  if (rows <= most) return enlarge_band(features);
  const Tensor picture = Tensor::like(features, {1, 4 * rows, 4 * columns, 3});
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t end = std::min(begin + most, rows);
    const int64_t top = std::max<int64_t>(begin - kBandBorder, 0), bottom = std::min(end + kBandBorder, rows);
    const Tensor band = enlarge_band(features.narrowed(1, top, bottom - top));
    picture.narrowed(1, 4 * begin, 4 * (end - begin)).copy_from(band.narrowed(1, 4 * (begin - top), 4 * (end - begin)));
  }
  return picture;
}

Tensor Upscaler::enlarge_band(const Tensor& features) const {
  Tensor x = leaky(upsample_conv2d(cast(features, activations), up1.weight, up1.bias));
  x = leaky(upsample_conv2d(x, up2.weight, up2.bias));
  x = leaky(filtered(high, x));
  return cast(filtered(last, x), DType::F32);
}

namespace {

// A convolution as the file stores it: weight [O, I, 3, 3], bias [O].
struct StoredFilter {
  int64_t outputs, inputs;
  std::vector<float> weight, bias;
};

// The filters of a file, one after the other as upscaler_tensors() lists them.
class StoredFilters {
 public:
  StoredFilters(const WeightSource& source, const UpscalerConfig& config) : source_(source), tensors_(upscaler_tensors(config)) {}

  StoredFilter next() {
    const auto& [weight, shape] = tensors_[at_];
    StoredFilter f{shape[0], shape[1], source_.open(weight).to_floats(), source_.open(tensors_[at_ + 1].first).to_floats()};
    at_ += 2;
    return f;
  }

 private:
  const WeightSource& source_;
  std::vector<std::pair<std::string, Shape>> tensors_;
  size_t at_ = 0;
};

// Appends inputs [first, first + count) of a filter as rows [O, 3, 3, count], each input times its factor.
template <class FactorOf>
void append(std::vector<float>& rows, const StoredFilter& f, int64_t first, int64_t count, const FactorOf& factor_of) {
  for (int64_t o = 0; o < f.outputs; ++o)
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t i = first; i < first + count; ++i)
        rows.push_back(factor_of(i) * f.weight[static_cast<size_t>((o * f.inputs + i) * 9 + tap)]);
}

class Loader {
 public:
  Loader(const WeightSource& source, const UpscalerConfig& config, const UpscalerLoading& loading)
      : stored_(source, config), config_(config), loading_(loading) {}

  Upscaler::Filter filter(float factor = 1.0f) {
    const StoredFilter f = stored_.next();
    std::vector<float> rows;
    append(rows, f, 0, f.inputs, [&](int64_t) { return factor; });
    return {weights(rows, f.outputs, f.inputs), bias(f.bias)};
  }

  DenseBlock dense_block() {
    std::vector<StoredFilter> convs;
    for (int k = 0; k < 5; ++k) convs.push_back(stored_.next());
    for (std::vector<float>* values : {&convs[4].weight, &convs[4].bias})
      for (float& v : *values) v *= kResidualFactor;
    const int64_t width = config_.width, growth = config_.growth;
    const auto factor_of = [&](int64_t input) { return input < width ? 1.0f : kLeakyFactor; };
    DenseBlock block;
    block.growth = growth;
    block.by_input = loading_.stream.device().is_host();
    std::vector<float> all_biases;
    for (size_t k = 0; k < 5; ++k) {
      std::vector<float> rows;
      if (!block.by_input) {
        append(rows, convs[k], 0, convs[k].inputs, factor_of);
        block.weights[k] = weights(rows, convs[k].outputs, convs[k].inputs);
        block.biases[k] = bias(convs[k].bias);
        continue;
      }
      // Input k: the block's own, or the result of convolution k.
      const int64_t first = k == 0 ? 0 : width + (static_cast<int64_t>(k) - 1) * growth, count = k == 0 ? width : growth;
      int64_t outputs = 0;
      for (size_t reader = k; reader < 5; ++reader) {
        append(rows, convs[reader], first, count, factor_of);
        outputs += convs[reader].outputs;
      }
      block.weights[k] = weights(rows, outputs, count);
      all_biases.insert(all_biases.end(), convs[k].bias.begin(), convs[k].bias.end());
    }
    if (block.by_input) block.biases[0] = bias(all_biases);
    return block;
  }

 private:
  Tensor weights(const std::vector<float>& rows, int64_t outputs, int64_t inputs) const {
    return Tensor::from<float>(loading_.stream, loading_.weights, {outputs, 3, 3, inputs}, rows);
  }
  Tensor bias(const std::vector<float>& values) const {
    return Tensor::from<float>(loading_.stream, loading_.activations, {static_cast<int64_t>(values.size())}, values);
  }

  StoredFilters stored_;
  const UpscalerConfig& config_;
  const UpscalerLoading& loading_;
};

}  // namespace

Upscaler load_upscaler(const WeightSource& weights, const UpscalerConfig& config, const UpscalerLoading& loading) {
  Upscaler network;
  network.config = config;
  network.activations = loading.activations;
  Loader loader(weights, config, loading);
  network.first = loader.filter();
  for (int i = 0; i < 3 * config.blocks; ++i) network.blocks.push_back(loader.dense_block());
  network.body = loader.filter();
  network.up1 = loader.filter();
  network.up2 = loader.filter(kLeakyFactor);
  network.high = loader.filter(kLeakyFactor);
  network.last = loader.filter(kLeakyFactor);
  loading.stream.wait();
  return network;
}

}  // namespace flux2
