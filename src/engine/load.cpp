#include <algorithm>
#include <limits>
#include <optional>

#include "engine/engine.h"
#include "engine/network_bytes.h"
#include "engine/page_schedule.h"
#include "engine/weight_stream.h"
#include "hub/gguf_tokenizer.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

// Left free of what a GPU has: other programs draw on it too.
constexpr int64_t kReserve = int64_t{1} << 30;

std::vector<std::shared_ptr<const MappedFile>> files_of(const WeightSource& source) {
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (const StoredTensor& t : source.tensors())
    if (t.file && std::find(files.begin(), files.end(), t.file) == files.end()) files.push_back(t.file);
  return files;
}

// Once a prompt is encoded its encoder is the largest thing in memory and idle: the system may have the pages back.
// They are read again, usually from its cache, when another prompt comes.
void forget_pages(const WeightSource& source) {
  for (const auto& file : files_of(source)) file->drop(0, file->bytes().size());
}

// What loading a network needs to know besides its files.
struct LoadSettings {
  std::shared_ptr<Stream> stream;
  DType activations;
  Quant quant;
  int threads;
  size_t resident_blocks = std::numeric_limits<size_t>::max();
  std::shared_ptr<AdapterRack> adapters = {};  // of the transformer
};

template <class Network>
auto visit_of(Network& network) {
  return [&network](const ParameterVisitor& visitor) { network.visit(visitor); };
}

// Makes the blocks from `resident` on take turns: on a GPU through two places on the device, on the host by giving pages back.
template <class Network>
void stream_blocks(Network& network, const NamedWeights& weights, const LoadSettings& settings) {
  BlockNumbers numbers;
  std::vector<std::vector<WeightStream::Source>> sources;
  std::vector<std::vector<std::string>> names;
  network.visit([&](const Parameter& p) {
    const auto block = numbers.of(p.name);
    sources.resize(numbers.count());
    names.resize(numbers.count());
    if (!block || *block < settings.resident_blocks || p.kind != ParameterKind::Matrix) return;
    names[*block].push_back(p.name);
    sources[*block].push_back({p.tensor, &p.tensor});
  });
  if (settings.stream->device().is_host()) network.schedule = std::make_shared<PageSchedule>(weights, std::move(names));
  else network.schedule = std::make_shared<WeightStream>(std::move(sources), *settings.stream, settings.stream->device().open_stream());
}

template <class Network>
std::shared_ptr<const Network> load_network(const NamedWeights& weights, const typename Resident<Network>::Config& config,
                                            const LoadSettings& settings) {
  auto network = std::make_shared<Network>(config);
  BlockNumbers numbers;
  const auto streamed = [&](const Parameter& p) {
    const auto block = numbers.of(p.name);
    return block && *block >= settings.resident_blocks;
  };
  load_parameters(weights,
                  {.stream = *settings.stream,
                   .activations = settings.activations,
                   .quant = settings.quant,
                   .threads = settings.threads,
                   .stays_on_host = streamed},
                  visit_of(*network));
  if constexpr (std::is_same_v<Network, Flux2Transformer>) settings.adapters->put_into(network);
  if constexpr (requires { network->schedule; })
    if (settings.resident_blocks < numbers.count()) stream_blocks(*network, weights, settings);
  return network;
}

// A network whose weights were found complete, to be loaded when it is wanted.
template <class Network>
Resident<Network> resident(const char* what, const NamedWeights& weights, const typename Resident<Network>::Config& config,
                           const LoadSettings& settings) {
  const std::string context = std::string("loading the ") + what;
  in_context(context, [&] {
    Network skeleton(config);
    check_parameters(weights, visit_of(skeleton));
  });
  return {config, [=] { return in_context(context, [&] { return load_network<Network>(weights, config, settings); }); }};
}

}  // namespace

Placement Engine::place(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working_bytes) const {
  const bool host = device_->is_host();
  // Mapped weights need no room of their own: the system gives up pages when it must.
  const bool unlimited = host && options_.memory_limit == 0;
  const int64_t available = device_->memory().available;
  const int64_t budget = unlimited ? std::numeric_limits<int64_t>::max()
                         : options_.memory_limit > 0 ? options_.memory_limit
                                                     : available - kReserve;
  Placement placement = choose_placement(encoder, transformer, working_bytes, budget, options_.offload);
  if (!host) return placement;
  // Copies in ordinary memory are made only when quantising, and then cannot be given up block by block.
  if (options_.quant != Quant::None) placement.encoder_blocks = encoder.blocks.size(), placement.transformer_blocks = transformer.blocks.size();
  placement.encoder_leaves = true;
  return placement;
}

std::unique_ptr<LoadedModel> Engine::load(const ModelFiles& files, const Progress& progress, const LoadParts& parts) const {
  const int count = parts.transformer + parts.text_encoder + parts.vae;
  int done = 0;
  const auto step = [&] { progress.at(Phase::Load, ++done, count); };
  progress.at(Phase::Load, 0, count);

  auto loaded = empty_model();
  loaded->files = files;
  Models& models = loaded->models;
  models.text_length = files.defaults.text_length;
  Session& session = loaded->session;
  LoadSettings settings{session.stream, session.activations, options_.quant, options_.threads};
  const bool host = device_->is_host();
  const auto open = [&](const std::filesystem::path& path, ModelPart part) {
    return NamedWeights(open_weights(path, options_.log), part);
  };
  const auto bytes_of = [&](const NamedWeights& weights, auto network) {
    return network_bytes(weights, options_.quant, session.activations, host, visit_of(network));
  };

  if (parts.vae) {
    const NamedWeights weights = open(files.vae, ModelPart::Autoencoder);
    const VaeConfig config = in_context("loading the autoencoder", [&] { return detect_vae(weights); });
    models.vae = resident<Vae>("autoencoder", weights, config, settings).get();
    step();
  }
  std::optional<NamedWeights> encoder_weights, transformer_weights;
  std::optional<Qwen3Config> encoder_config;
  std::optional<Flux2Config> transformer_config;
  NetworkBytes encoder_bytes, transformer_bytes;
  if (parts.text_encoder) {
    models.tokenizer = std::make_shared<BpeTokenizer>(load_tokenizer(files.tokenizer));
    encoder_weights = open(files.text_encoder, ModelPart::TextEncoder);
    encoder_config = in_context("loading the text encoder", [&] { return text_encoder_config(files, *encoder_weights); });
    encoder_bytes = bytes_of(*encoder_weights, Qwen3Encoder(*encoder_config));
  }
  if (parts.transformer) {
    transformer_weights = open(files.transformer, ModelPart::Transformer);
    transformer_config = in_context("loading the transformer", [&] { return detect_flux2(*transformer_weights); });
    transformer_bytes = bytes_of(*transformer_weights, Flux2Transformer(*transformer_config));
    loaded->adapters = settings.adapters = std::make_shared<AdapterRack>(
        *transformer_weights, *transformer_config, options_.adapter_mode, session.stream, session.activations, options_.log);
    settings.adapters->choose(options_.adapters);
  }
  const Placement placement = place(encoder_bytes, transformer_bytes, parts.working_bytes);
  if (transformer_config && (placement.transformer_blocks < transformer_bytes.blocks.size() || (placement.encoder_leaves && !host)))
    options_.log.info("{}", placement.str(transformer_bytes));
  session.decode_tile = options_.decode_tile >= 0 ? options_.decode_tile : placement.fits ? 0 : kDecodeTile;
  session.capture = options_.memory_limit == 0 && placement.transformer_blocks == transformer_bytes.blocks.size();
  const auto with_blocks = [&](size_t resident_blocks) {
    LoadSettings limited = settings;
    limited.resident_blocks = resident_blocks;
    return limited;
  };
  if (encoder_config)
    models.text_encoder = resident<Qwen3Encoder>("text encoder", *encoder_weights, *encoder_config, with_blocks(placement.encoder_blocks));
  if (transformer_config)
    models.transformer = resident<Flux2Transformer>("transformer", *transformer_weights, *transformer_config,
                                                    with_blocks(placement.transformer_blocks));

  std::vector<std::filesystem::path> ahead;  // in the order they will be wanted
  int64_t ahead_bytes = 0;
  for (const auto* weights : {&encoder_weights, &transformer_weights})
    if (*weights)
      for (const auto& file : files_of((*weights)->source())) {
        ahead.push_back(file->path());
        ahead_bytes += static_cast<int64_t>(file->bytes().size());
      }
  // More than the cache can hold would only push out what is about to be used.
  if (options_.memory_limit == 0 && ahead_bytes < system_memory_size().available) loaded->read_ahead = std::make_unique<ReadAhead>(std::move(ahead));

  const bool both = encoder_config && transformer_config;
  if (encoder_config && (host || (both && placement.encoder_leaves)))
    session.text_done = [encoder = models.text_encoder, weights = *encoder_weights, &session] {
      if (!encoder.is_loaded()) return;
      const auto network = encoder.get();
      std::erase_if(session.captured_work, [&](const CapturedWork& work) { return work.model == network; });
      encoder.let_go();
      forget_pages(weights.source());
    };
  // What is mapped is loaded in no time; copies wait for their turn where they would not fit together.
  const bool now = !both || (host ? options_.quant == Quant::None : !placement.encoder_leaves);
  if (now && models.text_encoder) models.text_encoder.get(), step();
  if (now && models.transformer) models.transformer.get(), step();
  if (!now) progress.at(Phase::Load, count, count);

  if (options_.profile == Profile::Fast && parts.vae)
    session.decode_in_f32 = [files, options = options_](const Tensor& tokens, int64_t rows, int64_t columns) {
      EngineOptions exact = options;
      exact.profile = Profile::Exact;
      const auto again = Engine(exact).load(files, {}, {.transformer = false, .text_encoder = false});
      return again->models.vae->decode(tokens.to(*again->session.stream), rows, columns);
    };
  return loaded;
}

void Engine::use_adapters(LoadedModel& model, const std::vector<AdapterChoice>& choices) const {
  if (!model.adapters) fail(ErrorCode::Internal, "adapters for a model without a transformer");
  if (!model.adapters->choose(choices) || !model.models.transformer.is_loaded()) return;
  {  // what was recorded or computed with the network as it was
    Session& session = model.session;
    const auto network = model.models.transformer.get();
    std::erase_if(session.captured_work, [&](const CapturedWork& work) {
      return work.model == network || (session.reference_memory && work.model == session.reference_memory);
    });
    session.reference_memory.reset();
  }
  if (!model.adapters->needs_loading()) return model.adapters->renew();
  options_.log.info("the change of adapters is one of the weights: the transformer is loaded again");
  model.models.transformer.let_go();
}

}  // namespace flux2
