#include "engine/forecast.h"

#include <algorithm>

#include "backend/plan/plan_device.h"
#include "engine/model_cost.h"
#include "engine/rate.h"
#include "nn/load.h"

namespace flux2 {

namespace {

// What the program itself and its libraries take, and what kernels take for themselves.
constexpr int64_t kHostBytes = int64_t{48} << 20, kDeviceBytes = int64_t{96} << 20;

// How much of a large product's rate each network reaches, from docs/speed.md.
struct Efficiency {
  double text, step, decode;
};
constexpr Efficiency kOnHost{0.90, 0.95, 0.75}, kOnGpu{0.60, 0.85, 0.70};

// A network whose parameters have sizes and no values.
template <class Network>
class Counted {
 public:
  Counted(const typename Resident<Network>::Config& config, const NamedWeights& weights, const Device& device,
          const EngineOptions& options, DType activations)
      : network_(std::make_shared<Network>(config)), stream_(const_cast<Device&>(device).open_stream()) {
    network_->visit([&](const Parameter& p) {
      const DType dtype = is_quantised(p, options.quant)       ? dtype_of(options.quant)
                          : p.kind == ParameterKind::Vector    ? activations
                          : p.kind == ParameterKind::Statistic ? DType::F32
                                                               : weights.dtype(p.name);
      Shape shape = p.shape;
      if (p.kind == ParameterKind::Conv) shape = {p.shape[0], p.shape[2], p.shape[3], p.shape[1]};
      p.tensor = Tensor::empty(*stream_, dtype, shape);
      // A mapped table is read row by row and hardly touched.
      if (p.kind != ParameterKind::Table || !device.is_host()) bytes_ += p.tensor.bytes();
    });
  }

  int64_t bytes() const { return bytes_; }
  const std::shared_ptr<Network>& network() const { return network_; }
  Resident<Network> resident() const {
    return {network_->config, [network = network_]() -> std::shared_ptr<const Network> { return network; }};
  }

 private:
  std::shared_ptr<Network> network_;
  std::shared_ptr<Stream> stream_;
  int64_t bytes_ = 0;
};

}  // namespace

int64_t Forecast::peak() const {
  int64_t largest = 0;
  for (const PhaseForecast& p : phases) largest = std::max(largest, p.peak());
  return largest;
}

double Forecast::seconds() const {
  double total = 0;
  for (const PhaseForecast& p : phases) total += p.seconds;
  return total;
}

Forecast forecast(const Engine& engine, const ModelFiles& files, const Request& request) {
  const auto device = open_plan_device(engine.device());
  const bool host = device->is_host();
  const EngineOptions& options = engine.options();
  Session session;
  session.stream = device->open_stream();
  session.activations = engine.activations();
  const auto open = [&](const std::filesystem::path& path, ModelPart part) { return NamedWeights(open_weights(path), part); };

  const NamedWeights transformer_weights = open(files.transformer, ModelPart::Transformer);
  const NamedWeights vae_weights = open(files.vae, ModelPart::Autoencoder);
  const Counted<Flux2Transformer> transformer(detect_flux2(transformer_weights), transformer_weights, *device, options,
                                              session.activations);
  const Counted<Vae> vae(detect_vae(vae_weights), vae_weights, *device, options, session.activations);
  Models models;
  models.transformer = transformer.resident();
  models.vae = vae.network();
  models.text_length = files.defaults.text_length;

  int64_t encoder_bytes = 0;
  double text_work = 0;
  Forecast result;
  if (!request.given_text.defined()) {
    const NamedWeights weights = open(files.text_encoder, ModelPart::TextEncoder);
    const Counted<Qwen3Encoder> encoder(text_encoder_config(files, weights), weights, *device, options, session.activations);
    models.text_encoder = encoder.resident();
    models.tokenizer = std::make_shared<BpeTokenizer>(BpeTokenizer::load(files.tokenizer));
    encoder_bytes = encoder.bytes();
    text_work = text_flop(encoder.network()->config, models.text_length) * (request.cfg ? 2 : 1);
    result.encoder_leaves = host || !engine.fits_whole(transformer_weights.source(), weights.source());
    if (result.encoder_leaves)
      session.text_done = [&session] { session.captured_work.clear(); };
  }

  std::vector<PhaseForecast>& phases = result.phases;
  const auto at = [&](Phase phase) -> PhaseForecast& {
    for (PhaseForecast& p : phases)
      if (p.phase == phase) return p;
    return phases.emplace_back(PhaseForecast{.phase = phase});
  };
  Phase current = Phase::Load;
  const auto account = [&] {
    PhaseForecast& p = at(current);
    p.activations = std::max(p.activations, static_cast<int64_t>(restart_peak(*session.stream)));
  };
  const Progress progress{.report = [&](Phase phase, int, int) {
    account();
    current = phase;
  }};
  text_to_image(models, session, request, progress, [](const Picture&) {});
  account();
  std::erase_if(phases, [](const PhaseForecast& p) { return p.phase == Phase::Load || p.phase == Phase::Save; });

  const double rate = product_rate(engine, 3);
  const Efficiency& share = host ? kOnHost : kOnGpu;
  const double passes = static_cast<double>(request.steps) * request.batch * (request.cfg ? 2 : 1);
  for (PhaseForecast& p : phases) {
    const bool text = p.phase == Phase::Text;
    // Mapped weights are in memory once they are touched, and only then.
    const int64_t transformer_there = text && (host || result.encoder_leaves) ? 0 : transformer.bytes();
    const int64_t encoder_there = text || !result.encoder_leaves ? encoder_bytes : 0;
    p.weights = transformer_there + encoder_there + vae.bytes() + (host ? kHostBytes : kDeviceBytes);
    switch (p.phase) {
      case Phase::Text: p.seconds = text_work / (rate * share.text); break;
      case Phase::Denoise:
        p.seconds = passes * step_flop(transformer.network()->config, models.text_length, request.tokens()) / (rate * share.step);
        break;
      case Phase::Decode:
        p.seconds = request.batch * decode_flop(*vae.network(), request.width, request.height) / (rate * share.decode);
        break;
      default: break;
    }
  }
  result.device = engine.device().name() + ": " + engine.device().description();
  result.memory = engine.device().memory();
  return result;
}

}  // namespace flux2
