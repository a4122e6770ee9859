#include <algorithm>

#include "engine/engine.h"
#include "engine/network_bytes.h"
#include "engine/random_weights.h"
#include "hub/synth_model.h"

namespace flux2 {

namespace {

// The same values in ordinary memory of the host, from where sessions stream them.
Tensor moved_to_host(const Tensor& t) {
  const Tensor host = Tensor::host_empty(t.dtype(), t.shape());
  t.stream().download(host.raw(), t.raw(), static_cast<size_t>(t.bytes()));
  return t.scales().defined() ? host.with_scales(moved_to_host(t.scales())) : host;
}

template <class Network>
Resident<Network> random_network(const typename Resident<Network>::Config& config, const std::shared_ptr<RandomWeights>& random,
                                 const std::shared_ptr<std::mutex>& loading, const std::vector<size_t>& on_host = {},
                                 AttentionBits attention = AttentionBits::Sixteen) {
  return {config, [=]() -> std::shared_ptr<const Network> {
            const std::lock_guard lock(*loading);
            auto network = std::make_shared<Network>(config);
            if constexpr (requires { network->attention_bits; }) network->attention_bits = attention;
            BlockNumbers numbers;
            network->visit([&](const Parameter& p) {
              (*random)(p);
              const auto block = numbers.of(p.name);
              if (block && p.kind == ParameterKind::Matrix && std::find(on_host.begin(), on_host.end(), *block) != on_host.end())
                p.tensor = moved_to_host(p.tensor);
            });
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
  const auto random = std::make_shared<RandomWeights>(model->stream, *this);
  const auto& loading = model->loading;
  if (parts.text_encoder && shape.text_encoder)
    model->models.text_encoder = random_network<TextEncoder>(*shape.text_encoder, random, loading);
  if (parts.transformer)
    model->models.transformer =
        random_network<Flux2Transformer>(shape.transformer, random, loading,
                                         device_->is_host() ? std::vector<size_t>{} : options_.chosen_blocks, this->attention());
  if (parts.vae) model->models.vae = random_network<Vae>(shape.vae, random, loading).get();
  return model;
}

}  // namespace flux2
