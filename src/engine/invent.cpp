#include <algorithm>

#include "engine/engine.h"
#include "hub/synth_model.h"
#include "hub/synth_values.h"
#include "nn/load.h"

namespace flux2 {

namespace {

// Fills tensors on the device from one stock of normal values there: gigabytes of weights need not be made and sent.
class RandomWeights {
 public:
  RandomWeights(Stream& stream, DType activations, const EngineOptions& options)
      : stream_(stream), activations_(activations), quant_(options.quant), threads_(options.threads) {
    std::vector<std::byte> bytes(static_cast<size_t>(2 * kStock));
    SynthValues(0, "stock", {0.0f, 1.0f}, DType::BF16).fill(0, bytes, threads_);
    stock_ = Tensor::empty(stream, DType::BF16, {kStock});
    stream.upload(stock_.raw(), bytes.data(), bytes.size());
  }

  void operator()(const Parameter& p) {
    Shape shape = p.shape;
    if (p.kind == ParameterKind::Conv) shape = {p.shape[0], p.shape[2], p.shape[3], p.shape[1]};
    const Tensor values = Tensor::empty(stream_, DType::BF16, shape);
    fill(values.reshaped({shape.numel()}), sane_values(p.name, p.shape, p.kind));
    p.tensor = p.kind == ParameterKind::Vector      ? values.cast(activations_)
               : p.kind == ParameterKind::Statistic ? values.cast(DType::F32)
               : is_quantised(p, quant_)            ? quantised_on(stream_, values, quant_, threads_)
                                                    : values;
  }

 private:
  void fill(const Tensor& flat, const ValueRange& range) {
    for (int64_t done = 0; done < flat.numel();) {
      const int64_t n = std::min(flat.numel() - done, kStock - next_);
      stream_.device().kernels().scale({stock_.narrowed(0, next_, n), flat.narrowed(0, done, n), range.deviation, range.mean});
      done += n;
      next_ = (next_ + (n + 7) / 8 * 8) % kStock;  // in steps that keep addresses aligned
    }
  }

  static constexpr int64_t kStock = 8 * 1999993;  // no multiple of any row length

  Stream& stream_;
  const DType activations_;
  const Quant quant_;
  ThreadPool threads_;
  Tensor stock_;
  int64_t next_ = 0;
};

template <class Network>
Resident<Network> invented(const typename Resident<Network>::Config& config, const std::shared_ptr<RandomWeights>& random) {
  return {config, [=]() -> std::shared_ptr<const Network> {
            auto network = std::make_shared<Network>(config);
            network->visit([&](const Parameter& p) { (*random)(p); });
            return network;
          }};
}

}  // namespace

std::unique_ptr<LoadedModel> Engine::invent(const std::string& variant, const LoadParts& parts) const {
  const SynthModel shape = model_of({.variant = variant});
  auto model = empty_model();
  model->files.id = shape.name;
  model->files.defaults = shape.defaults;
  model->models.text_length = shape.defaults.text_length;
  const auto random = std::make_shared<RandomWeights>(*model->session.stream, model->session.activations, options_);
  if (parts.text_encoder && shape.text_encoder) model->models.text_encoder = invented<Qwen3Encoder>(*shape.text_encoder, random);
  if (parts.transformer) model->models.transformer = invented<Flux2Transformer>(shape.transformer, random);
  if (parts.vae) model->models.vae = invented<Vae>(shape.vae, random).get();
  return model;
}

}  // namespace flux2
