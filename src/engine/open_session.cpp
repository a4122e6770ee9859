#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "engine/network_bytes.h"
#include "engine/weight_stream.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

// Once a prompt is encoded its encoder is the largest thing in memory and idle: the system may have the pages back.
// They are read again, usually from its cache, when another prompt comes.
void forget_pages(const LoadedPart& part) {
  if (!part.weights) return;
  for (const std::string& name : part.weights->names()) part.weights->forget_pages(name);
}

// Makes a copy of a network usable on a session's stream of a GPU: weights on the device are seen from that stream, so that what
// an op makes of one (unpacking it, say) is ordered with the rest of the session's work; blocks that wait in host memory get two
// places on the device in which they take turns.
template <class Network>
void put_on_stream(Network& network, Stream& stream, std::mutex& loading) {
  const std::lock_guard lock(loading);
  BlockNumbers numbers;
  std::vector<std::vector<WeightStream::Source>> sources;
  bool streams = false;
  network.visit([&](const Parameter& p) {
    const auto block = numbers.of(p.name);
    sources.resize(numbers.count());
    if (!p.tensor.on_host_only()) {
      p.tensor = p.tensor.to(stream);
    } else if (block) {
      sources[*block].push_back({p.tensor, &p.tensor});
      streams = true;
    }
  });
  if constexpr (requires { network.schedule; })
    if (streams) network.schedule = std::make_shared<WeightStream>(std::move(sources), stream, stream.device().open_stream());
}

template <class Network>
std::function<void(Network&)> preparing(const LoadedModel& model, const std::shared_ptr<Stream>& stream) {
  if (stream->device().is_host()) return {};
  return [stream, loading = model.loading](Network& copy) { put_on_stream(copy, *stream, *loading); };
}

template <class Network>
std::shared_ptr<const Network> prepared(std::shared_ptr<const Network> shared, const std::function<void(Network&)>& prepare) {
  if (!shared || !prepare) return shared;
  auto copy = std::make_shared<Network>(*shared);
  prepare(*copy);
  return copy;
}

// The first weight that is not a number. Reads whole files, so it is called only when something went wrong.
std::string damage_in(const NamedWeights& weights) {
  std::vector<float> row;
  for (const std::string& name : weights.names()) {
    const WeightRows rows(weights, name);
    row.resize(static_cast<size_t>(rows.width()));
    for (int64_t r = 0; r < rows.count(); ++r) {
      rows.values(r, row.data());
      if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); }))
        return fmt::format("{}: the tensor {} contains values that are not numbers", weights.source().description(), name);
    }
  }
  return "";
}

// The autoencoder once more, on the same device in profile exact.
struct ExactDecoder {
  void open(const ModelFiles& files, EngineOptions options) {
    options.profile = Profile::Exact;
    options.adapters.clear();
    engine = std::make_unique<Engine>(options);
    session = engine->open_session(engine->load(files, {}, {.transformer = false, .text_encoder = false}));
  }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<ModelSession> session;  // after the engine, so that it is destroyed first
};

}  // namespace

std::unique_ptr<ModelSession> Engine::open_session(std::shared_ptr<const LoadedModel> model) const {
  require(&model->stream->device() == device_.get(), "a session of one engine on the model of another");
  auto session = std::make_unique<ModelSession>();
  session->stream = device_->open_stream();
  session->log = options_.log;
  session->log_prompts = options_.log_prompts;
  session->find_damage = [parts = std::vector{model->transformer.weights, model->text_encoder.weights, model->vae.weights}] {
    for (const auto& weights : parts)
      if (std::string damage = weights ? damage_in(*weights) : ""; !damage.empty()) return damage;
    return std::string();
  };
  session->activations = activations();
  session->models = model->models;
  Models& models = session->models;
  const std::shared_ptr<Stream>& stream = session->stream;

  models.vae = prepared<Vae>(models.vae, preparing<Vae>(*model, stream));
  if (const auto prepare = preparing<TextEncoder>(*model, stream); prepare && models.text_encoder)
    models.text_encoder = {
        model->models.text_encoder.config(),
        [shared = model->models.text_encoder, prepare] { return prepared<TextEncoder>(shared.get(), prepare); },
        [shared = model->models.text_encoder] { shared.let_go(); }};
  if (models.transformer) {
    session->adapters = std::make_shared<SessionAdapters>(
        SharedTransformer{models.transformer, model->transformer.weights, preparing<Flux2Transformer>(*model, stream)},
        options_.adapter_mode, stream, session->activations, options_.log);
    if (model->transformer.weights) session->adapters->choose(options_.adapters);
    models.transformer = {model->models.transformer.config(), [adapters = session->adapters] { return adapters->network(); }};
  }

  const Placement& placement = model->placement;
  session->decode_tile = options_.decode_tile >= 0 ? options_.decode_tile : placement.tiles ? kDecodeTile : 0;
  session->prompt_cache.set_limit(cache_limit());
  session->picture_cache.set_limit(cache_limit());
  session->capture = options_.memory_limit == 0 && !model->transformer.is_streamed();
  // Where the two large networks do not fit beside each other, the transformer leaves before a prompt is encoded.
  if (device_->is_host() && options_.memory_limit > 0 && models.text_encoder && models.transformer)
    session->text_begins = [part = model->transformer, shared = model->models.transformer,
                            adapters = session->adapters](Session& s) {
      if (!s.models.transformer.is_loaded()) return;
      s.captured_work.clear();
      s.models.transformer.let_go();
      adapters->let_go();
      shared.let_go();
      forget_pages(part);
    };
  if (model->encoder_leaves)
    session->text_done = [part = model->text_encoder](Session& done) {
      const auto& encoder = done.models.text_encoder;
      if (!encoder.is_loaded()) return;
      const auto network = encoder.get();
      std::erase_if(done.captured_work, [&](const CapturedWork& work) { return work.model == network; });
      encoder.let_go();
      forget_pages(part);
    };
  if (options_.profile == Profile::Fast && models.vae && model->vae.weights) {
    session->always_decode_in_f32 = options_.decode_in_f32;
    const std::shared_ptr<ExactDecoder> kept = options_.decode_in_f32 ? std::make_shared<ExactDecoder>() : nullptr;
    session->decode_in_f32 = [files = model->files, options = options_, kept](const Tensor& tokens, int64_t rows,
                                                                              int64_t columns) {
      ExactDecoder once;
      ExactDecoder& decoder = kept ? *kept : once;
      if (!decoder.session) decoder.open(files, options);
      return decoder.session->models.vae->decode(tokens.to(*decoder.session->stream), rows, columns);
    };
  }
  session->model = std::move(model);
  return session;
}

void Engine::use_adapters(ModelSession& session, const std::vector<AdapterChoice>& choices) const {
  require(session.adapters && session.model->transformer.weights, "adapters for a model without the files of its transformer");
  if (!session.adapters->choose(choices) || !session.models.transformer.is_loaded()) return;
  // What was recorded or computed with the network as it was.
  const auto network = session.models.transformer.get();
  std::erase_if(session.captured_work, [&](const CapturedWork& work) {
    return work.model == network || (session.reference_memory && work.model == session.reference_memory);
  });
  session.reference_memory.reset();
  session.models.transformer.renew();
}

}  // namespace flux2
