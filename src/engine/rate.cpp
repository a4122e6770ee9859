#include "engine/rate.h"

#include <algorithm>
#include <chrono>

#include "engine/model_cost.h"
#include "engine/random_weights.h"
#include "hub/synth_values.h"
#include "nn/load.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "pipeline/latents.h"

namespace flux2 {

double product_rate(const Engine& engine, int repeat) {
  const bool host = engine.device().is_host();
  const int64_t rows = host ? 768 : 8192, size = host ? 3072 : 8192;
  const auto stream = engine.device().open_stream();
  const DType stored = engine.profile() == Profile::Exact ? DType::F32 : DType::BF16;
  Tensor x = random_tensor(*stream, engine.activations(), {rows, size}, "x");
  Tensor w = random_tensor(*stream, stored, {size, size}, "w");
  // On a GPU all but fp8 is unpacked for the product, which is then the plain one.
  if (engine.quant() != Quant::None && (host || engine.quant() == Quant::Fp8)) {
    ThreadPool threads(engine.options().threads);
    w = quantised_on(*stream, w, engine.quant(), threads);
    x = as_input(x, input_dtype(x, w));
  }
  const Tensor y = Tensor::empty(*stream, engine.activations(), {rows, size});
  std::vector<double> times;
  for (int i = 0; i < repeat + 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    engine.device().kernels().linear({x, w, nullptr, y});
    stream->wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) times.push_back(seconds);  // the first brings memory and algorithms into place
  }
  std::sort(times.begin(), times.end());
  return 2.0 * static_cast<double>(rows * size * size) / times[times.size() / 2];
}

namespace {

// FLOP of one measured piece on the host: a third of a second on two cores. With fewer tokens the time to unpack weights would
// count for too much. A GPU does the real shapes in that time.
constexpr double kPiece = 1.2e11;

// The most tokens at which `flop` stays within a piece.
template <class Flop>
int64_t tokens_for(int64_t wanted, bool host, const Flop& flop) {
  int64_t tokens = wanted;
  while (host && tokens > 128 && flop(tokens) > kPiece) tokens = tokens / 2;
  return tokens;
}

class RateMeter {
 public:
  explicit RateMeter(const Engine& engine)
      : engine_(engine),
        stream_(engine.device().open_stream()),
        weights_(stream_, engine, kStock),
        host_(stream_->device().is_host()) {}

  ModelRates measure(const MeasuredModel& model) {
    ModelRates rates;
    if (model.transformer) measure_step(*model.transformer, model.tokens, rates);
    if (model.text_encoder) measure_text(*model.text_encoder, model.text_tokens, rates);
    if (model.vae) measure_vae(*model.vae, model, rates);
    return rates;
  }

 private:
  static constexpr int64_t kStock = 1999993;

  // The median of a few runs behind one that brings memory and algorithms into place; that one alone where it is slow.
  double seconds_of(const std::function<void()>& work) const {
    const auto once = [&] {
      const auto start = std::chrono::steady_clock::now();
      work();
      stream_->wait();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    if (const double first = once(); first > 0.8) return first;
    std::vector<double> times;
    for (double sum = 0; times.empty() || (sum < 0.3 && times.size() < 9);) sum += times.emplace_back(once());
    std::sort(times.begin(), times.end());
    return times[(times.size() - 1) / 2];
  }

  Tensor random(const Shape& shape) const { return random_tensor(*stream_, engine_.activations(), shape, "x"); }

  // The transformer's attention.
  bool in_8_bits() const {
    const AttentionBits bits = engine_.attention();
    return bits == AttentionBits::Eight || (bits == AttentionBits::AsWeights && engine_.quant() == Quant::Fp8);
  }

  double attention_rate(int64_t wanted, int64_t heads, int64_t key_heads, int64_t head_dim, bool causal) const {
    const auto flop = [&](int64_t n) { return 4 * static_cast<double>(n * n) * static_cast<double>(heads * head_dim); };
    const int64_t n = tokens_for(wanted, host_, flop);
    const Tensor q = random({1, n, heads, head_dim}), k = random({1, n, key_heads, head_dim});
    const bool eight_bits = !causal && in_8_bits();
    return flop(n) / seconds_of([&] { attention(q, k, k, {.causal = causal, .key_mask = {}, .eight_bits = eight_bits}); });
  }

  // The rate of what is not attention in a block that took so long.
  static double rest_rate(double rest, double seconds, double attention_seconds) {
    return rest / std::max(seconds - attention_seconds, seconds / 4);
  }

  void measure_step(const Flux2Config& config, int64_t tokens, ModelRates& rates) {
    const auto products = [&](int64_t n) {
      return 26 * static_cast<double>(n * config.hidden) * static_cast<double>(config.hidden);
    };
    const auto looks_of = [&](int64_t n) { return 4 * static_cast<double>(n * n) * static_cast<double>(config.hidden); };
    // Attention is part of the block that is timed; in a small model with many tokens it is nearly all of it.
    const int64_t n = tokens_for(tokens, host_, [&](int64_t k) { return products(k) + looks_of(k); });
    rates.attention = attention_rate(tokens, config.heads(), config.heads(), Flux2Config::kHeadDim, false);
    SingleBlock block(config);
    block.visit("single_blocks.0.", [&](const Parameter& p) { weights_(p); });
    const Rope rope = flux2_rope(*stream_, picture_positions(1, n));
    const Tensor x = random({1, n, config.hidden}), m = random({1, 1, config.hidden});
    const double seconds = seconds_of([&] { block(x, rope, {m, m, m}, {.bits = engine_.attention()}); });
    const double attention = n == tokens ? 0 : attention_rate(n, config.heads(), config.heads(), Flux2Config::kHeadDim, false);
    rates.step = rest_rate(products(n), seconds, looks_of(n) / (attention > 0 ? attention : rates.attention));
  }

  void measure_text(const DecoderConfig& config, int64_t tokens, ModelRates& rates) {
    const double layers = static_cast<double>(config.layers_needed());
    const auto products = [&](int64_t n) { return (text_flop(config, n) - text_attention_flop(config, n)) / layers; };
    const int64_t n = tokens_for(tokens, host_, products);
    rates.text_attention = attention_rate(n, config.heads, config.kv_heads, config.head_dim, true);
    DecoderLayer layer(config);
    layer.visit("model.layers.0.", [&](const Parameter& p) { weights_(p); });
    const Rope rope = text_rope(*stream_, n, config.head_dim, config.rope_theta);
    const Tensor x = random({1, n, config.hidden});
    const double seconds = seconds_of([&] { layer(x, {.rope = rope}); });
    rates.text = rest_rate(products(n), seconds, text_attention_flop(config, n) / layers / rates.text_attention);
  }

  void measure_vae(const VaeConfig& config, const MeasuredModel& model, ModelRates& rates) {
    Vae vae(config);
    vae.visit([&](const Parameter& p) { weights_(p); });
    const auto rate = [&](auto flop, auto work) {
      int64_t side = std::max<int64_t>(64, model.side / 16 * 16);
      while (side > 128 && flop(vae, side, side) > (host_ ? kPiece : 30 * kPiece)) side = side / 2 / 16 * 16;
      return flop(vae, side, side) / seconds_of([&] { work(side); });
    };
    rates.decode = rate(decode_flop, [&](int64_t side) {
      vae.decode(random_tensor(*stream_, DType::F32, {1, side / 16 * (side / 16), config.packed_channels()}, "z"), side / 16,
                 side / 16);
    });
    if (model.encodes && config.has_encoder)
      rates.encode = rate(encode_flop, [&](int64_t side) { vae.encode(random({1, side, side, 3})); });
  }

  const Engine& engine_;
  const std::shared_ptr<Stream> stream_;
  RandomWeights weights_;
  const bool host_;
};

}  // namespace

ModelRates measure_rates(const Engine& engine, const MeasuredModel& model) { return RateMeter(engine).measure(model); }

}  // namespace flux2
