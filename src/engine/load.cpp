#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/engine.h"
#include "engine/network_bytes.h"
#include "engine/page_schedule.h"
#include "hub/gguf_tokenizer.h"
#include "model/check_network.h"

namespace flux2 {

namespace {

// Left free of what a GPU has: other programs draw on it too.
constexpr int64_t kReserve = int64_t{1} << 30;

// Each of the two caches of a session takes at most this part of a limit.
constexpr int64_t kCacheShare = 32;

std::vector<std::shared_ptr<const MappedFile>> files_of(const WeightSource& source) {
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (const StoredTensor& t : source.tensors())
    if (t.file && std::find(files.begin(), files.end(), t.file) == files.end()) files.push_back(t.file);
  return files;
}

std::vector<LoadedPart::File> stamps_of(const WeightSource& source) {
  std::vector<LoadedPart::File> stamps;
  for (const auto& file : files_of(source)) {
    std::error_code unknown;
    stamps.push_back({file->path(), std::filesystem::last_write_time(file->path(), unknown), file->bytes().size()});
  }
  return stamps;
}

// What loading a network needs to know besides its files.
struct LoadSettings {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<std::mutex> loading;
  DType activations;
  Quant quant;
  int threads;
  std::shared_ptr<QuantisedCache> cache;  // null: none
  bool memory_is_short = false;
  size_t resident_blocks = std::numeric_limits<size_t>::max();
  std::vector<size_t> chosen = {};                   // blocks that are streamed besides those behind resident_blocks
  AttentionBits attention = AttentionBits::Sixteen;  // of the transformer

  bool streams(size_t block) const {
    return block >= resident_blocks || std::find(chosen.begin(), chosen.end(), block) != chosen.end();
  }
};

template <class Network>
auto visit_of(Network& network) {
  return [&network](const ParameterVisitor& visitor) { network.visit(visitor); };
}

// Makes the pages of the blocks that do not stay take turns. A schedule of pages changes nothing itself, so that sessions share
// it.
template <class Network>
void take_turns_on_host(Network& network, const NamedWeights& weights, const LoadSettings& settings) {
  BlockNumbers numbers;
  std::vector<std::vector<std::string>> names;
  network.visit([&](const Parameter& p) {
    const auto block = numbers.of(p.name);
    names.resize(numbers.count());
    if (block && settings.streams(*block) && p.kind == ParameterKind::Matrix) names[*block].push_back(p.name);
  });
  network.schedule = std::make_shared<PageSchedule>(weights, std::move(names));
}

template <class Network>
QuantisedNetwork quantised_network(const NamedWeights& weights, Network& network, Quant quant) {
  QuantisedNetwork wanted{.part = name_of(weights.part()), .quant = quant};
  for (const auto& file : files_of(weights.source())) wanted.files.push_back(file->path());
  wanted.matrices = quantised_matrices(weights, quant, visit_of(network));
  return wanted;
}

template <class Network>
std::shared_ptr<const Network> load_network(const NamedWeights& weights, const typename Resident<Network>::Config& config,
                                            const LoadSettings& settings) {
  const std::lock_guard lock(*settings.loading);
  auto network = std::make_shared<Network>(config);
  if constexpr (requires { network->attention_bits; }) network->attention_bits = settings.attention;
  BlockNumbers numbers;
  const auto streamed = [&](const Parameter& p) {
    const auto block = numbers.of(p.name);
    return block && settings.streams(*block);
  };
  LoadOptions options{.stream = *settings.stream,
                      .activations = settings.activations,
                      .quant = settings.quant,
                      .threads = settings.threads,
                      .stays_on_host = streamed};
  QuantisedNetwork wanted;
  std::vector<std::pair<std::string, Tensor>> to_keep;
  if (settings.cache) {
    wanted = quantised_network(weights, *network, settings.quant);
    if (const auto cached = settings.cache->find(wanted))
      options.kept = [=](const Parameter& p) { return cached_matrix(*cached, p.name, p.shape, settings.quant); };
    else options.quantised = [&](const Parameter& p, const Tensor& t) { to_keep.emplace_back(p.name, t); };
  }
  load_parameters(weights, options, visit_of(*network));
  // Writing in the background keeps the matrices in memory even after the network is unloaded.
  if (!to_keep.empty()) settings.cache->keep(wanted, std::move(to_keep), settings.memory_is_short);
  if constexpr (requires { network->schedule; })
    if (settings.stream->device().is_host() && (settings.resident_blocks < block_count(*network) || !settings.chosen.empty()))
      take_turns_on_host(*network, weights, settings);
  settings.stream->wait();  // sessions read the weights on streams of their own
  return network;
}

[[noreturn]] void refuse(const Placement& placement, Quant quant) {
  const auto gib = [](int64_t bytes) {
    return fmt::format("{:.2f}", std::ceil(static_cast<double>(bytes) / (1 << 30) * 100) / 100);
  };
  std::string way = "the smallest limit that works here is {0}; a smaller size or batch needs less";
  if (quant != Quant::None)
    way +=
        ". Weights quantised while loading stay in memory; those of a file that is stored quantised are read as they are needed";
  throw Error(ErrorCode::OutOfMemory,
              fmt::format("this needs {} GiB of memory; the limit is {} GiB", gib(placement.smallest), gib(placement.budget)),
              Hint(way, {set_option("max_ram", gib(placement.smallest))}));
}

// A network whose weights were found complete, to be loaded when it is wanted.
template <class Network>
Resident<Network> resident(const char* what, const std::shared_ptr<const NamedWeights>& weights,
                           const typename Resident<Network>::Config& config, const LoadSettings& settings) {
  const std::string context = std::string("loading the ") + what;
  in_context(context, [&] {
    Network skeleton(config);
    check_network(*weights, visit_of(skeleton));
  });
  return {config, [=] { return in_context(context, [&] { return load_network<Network>(*weights, config, settings); }); }};
}

}  // namespace

Placement Engine::place(const NetworkBytes& encoder, const NetworkBytes& transformer, const WorkingBytes& working) const {
  const bool host = device_->is_host();
  const int64_t limit = options_.memory_limit;
  // Without a limit mapped weights need no room of their own: the system gives up pages when it must.
  const int64_t budget = limit > 0 ? limit : host ? std::numeric_limits<int64_t>::max() : device_->memory().available - kReserve;
  // Quantised copies in ordinary memory cannot be given up block by block.
  const bool can_stream = !host || (options_.quant == Quant::None && encoder_quant() == Quant::None);
  // A limit of the CPU is one of the whole process, its caches included, which grow with the limit.
  const bool whole_process = host && limit > 0;
  const int64_t own = whole_process ? program_bytes() : 0, caches = whole_process ? 2 * cache_limit() : 0;
  const auto placed = [&](int64_t bytes) {
    Placement p = choose_placement(encoder, transformer, own + bytes, budget - caches, options_.offload, can_stream,
                                   options_.streamed_blocks);
    p.budget = budget;
    p.peak += caches;
    if (whole_process) p.smallest += p.smallest / (kCacheShare / 2 - 1) + 1;
    return p;
  };
  Placement placement = placed(working.whole);
  if (options_.decode_tile < 0 && !placement.fits) {
    placement = placed(working.tiled);
    placement.tiles = true;
  }
  if (host && limit == 0) placement.budget = 0;
  if (host) placement.encoder_leaves = true;
  return placement;
}

// Of text states, and of latents of images.
int64_t Engine::cache_limit() const {
  constexpr int64_t kUsual = int64_t{512} << 20;
  return options_.memory_limit > 0 ? std::min(kUsual, options_.memory_limit / kCacheShare) : kUsual;
}

std::shared_ptr<const LoadedModel> Engine::load(const ModelFiles& files, const Progress& progress, const LoadParts& parts,
                                                const std::shared_ptr<const LoadedModel>& previous) const {
  const int count = parts.transformer + parts.text_encoder + parts.vae;
  int done = 0;
  const auto step = [&] { progress.at(Phase::Load, ++done, count); };
  progress.at(Phase::Load, 0, count);

  auto loaded = empty_model();
  loaded->files = files;
  Models& models = loaded->models;
  models.text_length = files.defaults.text_length;
  const LoadSettings settings{loaded->stream, loaded->loading,          activations(), options_.quant, options_.threads,
                              quant_cache_,   options_.memory_limit > 0};
  const bool host = device_->is_host();
  const LoadedModel* const before = previous && &previous->stream->device() == device_.get() ? previous.get() : nullptr;
  const auto open = [&](LoadedPart& part, const std::filesystem::path& path, ModelPart kind) {
    part.weights = std::make_shared<const NamedWeights>(open_weights(path, options_.log), kind);
    part.files = stamps_of(part.weights->source());
  };
  const auto is_same = [](const LoadedPart& a, const LoadedPart& b) {
    return !b.files.empty() && a.files == b.files && a.resident_blocks == b.resident_blocks;
  };
  // Every tensor is checked before its extents are used.
  const auto bytes_of = [&](const char* what, const NamedWeights& weights, Quant quant, auto network) {
    in_context(std::string("loading the ") + what, [&] { check_network(weights, visit_of(network)); });
    return network_bytes(weights, quant, activations(), host, visit_of(network));
  };

  if (parts.vae) {
    open(loaded->vae, files.vae, ModelPart::Autoencoder);
    if (before && is_same(loaded->vae, before->vae)) {
      models.vae = before->models.vae;
    } else {
      const VaeConfig config = in_context("loading the autoencoder", [&] { return detect_vae(*loaded->vae.weights); });
      models.vae = resident<Vae>("autoencoder", loaded->vae.weights, config, settings).get();
      for (const auto& file : files_of(loaded->vae.weights->source())) file->drop(0, file->bytes().size());  // it was copied
    }
    step();
  }
  std::optional<DecoderConfig> encoder_config;
  std::optional<Flux2Config> transformer_config;
  NetworkBytes encoder_bytes, transformer_bytes;
  if (parts.text_encoder) {
    models.tokenizer = std::make_shared<BpeTokenizer>(load_tokenizer(files.tokenizer, files.defaults.system_message));
    open(loaded->text_encoder, files.text_encoder, ModelPart::TextEncoder);
    encoder_config =
        in_context("loading the text encoder", [&] { return text_encoder_config(files, *loaded->text_encoder.weights); });
    check_tokenizer(files, *models.tokenizer, *encoder_config);
    encoder_bytes = bytes_of("text encoder", *loaded->text_encoder.weights, encoder_quant(), TextEncoder(*encoder_config));
  }
  if (parts.transformer) {
    open(loaded->transformer, files.transformer, ModelPart::Transformer);
    transformer_config = in_context("loading the transformer", [&] { return detect_flux2(*loaded->transformer.weights); });
    transformer_bytes = bytes_of("transformer", *loaded->transformer.weights, quant(), Flux2Transformer(*transformer_config));
    // An adapter that cannot be used is refused before anything large is read. The session opens them again and warns.
    for (const AdapterChoice& choice : options_.adapters) open_adapter(choice, *transformer_config, {});
  }
  if (encoder_config && transformer_config && encoder_config->output_width() != transformer_config->text_width)
    fail(ErrorCode::Incompatible,
         "{} produces text states of width {}, but txt_in.weight of {} takes width {}: they do not belong together",
         loaded->text_encoder.weights->source().description(), encoder_config->output_width(),
         loaded->transformer.weights->source().description(), transformer_config->text_width);
  const Placement placement = loaded->placement = place(encoder_bytes, transformer_bytes, parts.working);
  if (host && options_.memory_limit > 0 && !placement.fits) refuse(placement, quant() != Quant::None ? quant() : encoder_quant());
  if ((options_.streamed_blocks > 0 || !options_.chosen_blocks.empty()) && host &&
      (quant() != Quant::None || encoder_quant() != Quant::None))
    options_.log.warn("weights that are quantised while loading stay in memory: no blocks are swapped");
  if (transformer_config &&
      (placement.transformer_blocks < transformer_bytes.blocks.size() || (placement.encoder_leaves && !host)))
    options_.log.info("{}", placement.str(transformer_bytes));
  const auto with_blocks = [&](size_t resident_blocks, Quant quant) {
    LoadSettings limited = settings;
    limited.resident_blocks = resident_blocks;
    limited.quant = quant;
    return limited;
  };
  if (encoder_config) {
    LoadedPart& part = loaded->text_encoder;
    part.resident_blocks = placement.encoder_blocks;
    part.blocks = encoder_bytes.blocks.size();
    const bool same = before && is_same(part, before->text_encoder) && before->models.text_encoder.config() == *encoder_config;
    models.text_encoder = same ? before->models.text_encoder
                               : resident<TextEncoder>("text encoder", part.weights, *encoder_config,
                                                       with_blocks(part.resident_blocks, encoder_quant()));
  }
  if (transformer_config) {
    LoadedPart& part = loaded->transformer;
    part.blocks = transformer_bytes.blocks.size();
    LoadSettings limited = with_blocks(placement.transformer_blocks, quant());
    limited.attention = attention();
    if (!options_.chosen_blocks.empty() && !(host && quant() != Quant::None)) {
      limited.resident_blocks = part.blocks;
      limited.chosen = options_.chosen_blocks;
    }
    part.resident_blocks = std::min(limited.resident_blocks, part.blocks - limited.chosen.size());
    models.transformer = before && is_same(part, before->transformer)
                             ? before->models.transformer
                             : resident<Flux2Transformer>("transformer", part.weights, *transformer_config, limited);
  }

  std::vector<std::filesystem::path> ahead;  // in the order they will be wanted
  int64_t ahead_bytes = 0;
  const auto read_soon = [&](const LoadedPart& part, auto network) {
    const auto cached =
        quant_cache_ ? quant_cache_->path_of(quantised_network(*part.weights, network, options_.quant)) : std::filesystem::path();
    std::error_code absent;
    if (const auto bytes = std::filesystem::file_size(cached, absent); !absent) {
      ahead.push_back(cached);
      ahead_bytes += static_cast<int64_t>(bytes);
      return;
    }
    for (const LoadedPart::File& file : part.files) {
      ahead.push_back(file.path);
      ahead_bytes += static_cast<int64_t>(file.bytes);
    }
  };
  if (encoder_config) read_soon(loaded->text_encoder, TextEncoder(*encoder_config));
  if (transformer_config) read_soon(loaded->transformer, Flux2Transformer(*transformer_config));
  // More than the cache can hold would only push out what is about to be used.
  if (options_.memory_limit == 0 && ahead_bytes < system_memory_size().available)
    loaded->read_ahead = std::make_unique<ReadAhead>(std::move(ahead));

  const bool both = encoder_config && transformer_config;
  loaded->encoder_leaves = encoder_config && (host || (both && placement.encoder_leaves));
  // What is mapped is loaded in no time; copies wait for their turn where they would not fit together.
  const bool copies = quant() != Quant::None || encoder_quant() != Quant::None;
  const bool now = !both || (host ? !copies : !placement.encoder_leaves);
  if (now && models.text_encoder) models.text_encoder.get(), step();
  if (now && models.transformer) models.transformer.get(), step();
  if (!now) progress.at(Phase::Load, count, count);
  return loaded;
}

}  // namespace flux2
