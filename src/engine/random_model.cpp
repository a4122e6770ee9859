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
  RandomWeights(std::shared_ptr<Stream> stream, DType activations, const EngineOptions& options)
      : stream_owner_(std::move(stream)),
        stream_(*stream_owner_),
        activations_(activations),
        quant_(options.quant),
        threads_(options.threads) {
    std::vector<std::byte> bytes(static_cast<size_t>(2 * kStock));
    SynthValues(0, "stock", {0.0f, 1.0f}, DType::BF16).fill(0, bytes, threads_);
    stock_ = Tensor::empty(stream_, DType::BF16, {kStock});
    stream_.upload(stock_.raw(), bytes.data(), bytes.size());
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

  void finish() const { stream_.wait(); }  // other streams may read what was made

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

  const std::shared_ptr<Stream> stream_owner_;
  Stream& stream_;
  const DType activations_;
  const Quant quant_;
  ThreadPool threads_;
  Tensor stock_;
  int64_t next_ = 0;
};

template <class Network>
Resident<Network> random_network(const typename Resident<Network>::Config& config, const std::shared_ptr<RandomWeights>& random,
                                 const std::shared_ptr<std::mutex>& loading) {
  return {config, [=]() -> std::shared_ptr<const Network> {
            const std::lock_guard lock(*loading);
            auto network = std::make_shared<Network>(config);
            network->visit([&](const Parameter& p) { (*random)(p); });
            random->finish();
            return network;
          }};
}

}  // namespace

std::shared_ptr<const LoadedModel> Engine::random_model(const std::string& variant, const LoadParts& parts) const {
  const SynthModel shape = model_of({.variant = variant});
  auto model = empty_model();
  model->files.id = shape.name;
  model->files.defaults = shape.defaults;
  model->models.text_length = shape.defaults.text_length;
  const auto random = std::make_shared<RandomWeights>(model->stream, activations(), options_);
  const auto& loading = model->loading;
  if (parts.text_encoder && shape.text_encoder)
    model->models.text_encoder = random_network<Qwen3Encoder>(*shape.text_encoder, random, loading);
  if (parts.transformer) model->models.transformer = random_network<Flux2Transformer>(shape.transformer, random, loading);
  if (parts.vae) model->models.vae = random_network<Vae>(shape.vae, random, loading).get();
  return model;
}

}  // namespace flux2
