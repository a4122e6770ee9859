#include "engine/forecast.h"

#include <algorithm>
#include <optional>

#include "backend/plan/plan_device.h"
#include "engine/model_cost.h"
#include "engine/network_bytes.h"
#include "engine/rate.h"
#include "hub/gguf_tokenizer.h"
#include "model/check_network.h"
#include "pipeline/check_request.h"
#include "pipeline/regions.h"
#include "pipeline/tiles.h"

namespace flux2 {

namespace {

// What kernels take for themselves.
constexpr int64_t kOnHostBytes = int64_t{32} << 20, kOnGpuBytes = int64_t{128} << 20;

// A network whose parameters have sizes and no values.
template <class Network>
struct Counted {
  Counted(const typename Resident<Network>::Config& config, const NamedWeights& weights, Device& device, const Engine& engine,
          Quant quant)
      : network(std::make_shared<Network>(config)), stream(device.open_stream()) {
    if constexpr (requires { network->attention_bits; }) network->attention_bits = engine.attention();
    const auto visit = [&](const ParameterVisitor& visitor) { network->visit(visitor); };
    check_network(weights, visit);
    bytes = network_bytes(weights, quant, engine.activations(), device.is_host(), visit);
    visit([&](const Parameter& p) {
      Shape shape = p.shape;
      if (p.kind == ParameterKind::Conv) shape = {p.shape[0], p.shape[2], p.shape[3], p.shape[1]};
      p.tensor = Tensor::empty(*stream, loaded_dtype(p, weights.dtype(p.name), quant, engine.activations()), shape);
    });
  }

  Resident<Network> resident() const {
    return {network->config, [n = network]() -> std::shared_ptr<const Network> { return n; }};
  }

  std::shared_ptr<Network> network;
  std::shared_ptr<Stream> stream;
  NetworkBytes bytes;
};

// The model of a request on the device that counts.
struct Rehearsal {
  Rehearsal(const Engine& engine, const ModelFiles& files, const Request& request) : device(open_plan_device(engine.device())) {
    const auto open = [&](const std::filesystem::path& path, ModelPart part) { return NamedWeights(open_weights(path), part); };
    const NamedWeights transformer_weights = open(files.transformer, ModelPart::Transformer);
    transformer.emplace(detect_flux2(transformer_weights), transformer_weights, *device, engine, engine.quant());
    const NamedWeights vae_weights = open(files.vae, ModelPart::Autoencoder);
    vae.emplace(detect_vae(vae_weights), vae_weights, *device, engine, engine.quant());
    if (!request.given_text.defined()) {
      const NamedWeights weights = open(files.text_encoder, ModelPart::TextEncoder);
      encoder.emplace(text_encoder_config(files, weights), weights, *device, engine, engine.encoder_quant());
      session.models.text_encoder = encoder->resident();
      session.models.tokenizer = std::make_shared<BpeTokenizer>(load_tokenizer(files.tokenizer, files.defaults.system_message));
    }
    session.models.transformer = transformer->resident();
    session.models.vae = vae->network;
    session.models.text_length = files.defaults.text_length;
    session.stream = device->open_stream();
    session.activations = engine.activations();
    session.capture = engine.options().memory_limit == 0;
    session.decode_tile = std::max<int64_t>(0, engine.options().decode_tile);
    for (const AdapterChoice& choice : engine.options().adapters)
      if (choice.strength != 0)
        adapters += adapter_bytes(open_adapter(choice, transformer->network->config, {}), transformer_weights,
                                  engine.options().adapter_mode == AdapterMode::Merge, engine.activations());
    if (!request.image_prompts.empty()) add_image_prompt(static_cast<int64_t>(request.image_prompts[0].feature.size()));
  }

  // A request does not say which adapter turns its image prompts into input, so one of the larger form is counted.
  void add_image_prompt(int64_t feature_width) {
    ImagePromptConfig config;
    config.feature_width = feature_width;
    config.hidden = transformer->network->config.hidden;
    config.double_blocks = transformer->network->config.double_blocks;
    config.form = ImagePromptForm::Decoupled;
    const auto network = std::make_shared<ImagePromptNetwork>(config);
    image_prompt_stream = device->open_stream();
    network->visit([&](const Parameter& p) {
      p.tensor = Tensor::empty(*image_prompt_stream, session.activations, p.shape);
      adapters += static_cast<int64_t>(p.tensor.bytes());
    });
    session.image_prompt = network;
  }

  // The same request with as many images and steps as its memory depends on: one group of images and the beginning of the next,
  // and the steps that a sampler remembers. So a rehearsal takes the same time for one image and for a thousand.
  Request shortened(Request request) const {
    constexpr int kSteps = 4;
    const int64_t tokens = session.models.text_length + request.tokens();
    request.batch = static_cast<int>(std::min<int64_t>(request.batch, session.tokens_at_once / tokens + 2));
    request.steps = std::min(request.steps, kSteps);
    auto& sigmas = request.schedule.sigmas;
    if (sigmas.size() > kSteps + 1) sigmas.erase(sigmas.begin(), sigmas.end() - (kSteps + 1));
    return request;
  }

  // Bytes the pool hands out at most in each phase.
  std::vector<PhaseForecast> run(const Request& whole) {
    check_request(whole, session.models);
    const Request request = shortened(whole);
    std::vector<PhaseForecast> phases;
    Phase current = Phase::Load;
    const auto account = [&] {
      auto found = std::find_if(phases.begin(), phases.end(), [&](const PhaseForecast& p) { return p.phase == current; });
      if (found == phases.end()) found = phases.insert(found, PhaseForecast{.phase = current});
      found->activations = std::max(found->activations, static_cast<int64_t>(restart_peak(*session.stream)));
    };
    const Progress progress{.report = [&](Phase phase, int, int) {
      account();
      current = phase;
    }};
    text_to_image(session, request, progress, [](const Picture&) {});
    account();
    std::erase_if(phases, [](const PhaseForecast& p) { return p.phase == Phase::Load || p.phase == Phase::Save; });
    return phases;
  }

  NetworkBytes encoder_bytes() const { return encoder ? encoder->bytes : NetworkBytes{}; }

  std::shared_ptr<Device> device;
  std::optional<Counted<Flux2Transformer>> transformer;
  std::optional<Counted<TextEncoder>> encoder;
  std::optional<Counted<Vae>> vae;
  int64_t adapters = 0;                         // bytes
  std::shared_ptr<Stream> image_prompt_stream;  // of weights, which are not among what a pass needs
  Session session;
};

// What the phases need beside the weights of transformer and text encoder.
int64_t working_bytes_of(const Rehearsal& rehearsal, const std::vector<PhaseForecast>& phases) {
  int64_t largest = 0;
  for (const PhaseForecast& p : phases) largest = std::max(largest, p.activations);
  largest += largest / 8;  // what the pool keeps between blocks, too small for the next request
  return largest + rehearsal.vae->bytes.total() + rehearsal.adapters + (rehearsal.device->is_host() ? kOnHostBytes : kOnGpuBytes);
}

// Of the image and of those it is made from, in pixels.
int64_t longest_side(const Request& request) {
  int64_t longest = std::max(request.width, request.height);
  const auto add = [&](const auto& pictures) {
    for (const auto& picture : pictures) longest = std::max<int64_t>({longest, picture->width, picture->height});
  };
  add(request.references);
  for (const Region& region : request.regions) add(region.references);
  return longest;
}

// A request rehearsed twice where that matters: encoded and decoded at once, and in tiles.
struct Phases {
  Phases(Rehearsal& rehearsal, const Engine& engine, const Request& request) : whole(rehearsal.run(request)), tiled(whole) {
    if (engine.options().decode_tile >= 0 || longest_side(request) <= 16 * kDecodeTile) return;
    rehearsal.session.decode_tile = kDecodeTile;
    rehearsal.session.captured_work.clear();
    tiled = rehearsal.run(request);
  }
  WorkingBytes working(const Rehearsal& r) const { return {working_bytes_of(r, whole), working_bytes_of(r, tiled)}; }

  std::vector<PhaseForecast> whole, tiled;
};

// Seconds of a phase at the rates that were measured.
double seconds_of(const Rehearsal& r, const Request& request, const ModelRates& rates, Phase phase) {
  const double passes = static_cast<double>(request.batch) * (request.cfg ? 2 : 1);
  const int64_t text_length = r.session.models.text_length;
  const Vae& vae = *r.vae->network;
  switch (phase) {
    case Phase::Text: {
      if (!r.encoder) return 0;
      const DecoderConfig& config = r.encoder->network->config;
      const double all = text_flop(config, text_length), attention = text_attention_flop(config, text_length);
      const auto prompts = static_cast<double>(prompts_of(request).size()) + (request.cfg ? 1 : 0);
      return ((all - attention) / rates.text + attention / rates.text_attention) * prompts;
    }
    case Phase::EncodeReferences: {
      double flop = 0;
      const auto add = [&](const auto& pictures) {
        for (const auto& picture : pictures) flop += encode_flop(vae, picture->width, picture->height);
      };
      add(request.references);
      for (const Region& region : request.regions) add(region.references);
      if (request.canvas) flop += encode_flop(vae, request.width, request.height);
      return flop > 0 ? flop / rates.encode : 0;
    }
    case Phase::Denoise: {
      const Flux2Config& config = r.transformer->network->config;
      const int steps = passes_of(request.sampler, static_cast<int>(request.sigmas().size()) - 1);
      const int64_t references = request.reference_tokens();
      const auto pass = [&](int64_t text, int64_t image, int64_t others, double visible = 1) {
        const double attention = step_attention_flop(config, text + image, others);
        return (step_flop(config, text, image, others) - attention) / rates.step + visible * attention / rates.attention;
      };
      if (!request.regions.empty() && !request.reuse_reference_keys) {
        const auto prompts = static_cast<int64_t>(prompts_of(request).size());
        const int64_t image = request.tokens() + references;
        const double with_prompts = pass(prompts * text_length, image, 0, visible_share(request, text_length));
        return request.batch * steps * (with_prompts + (request.cfg ? pass(text_length, image, 0) : 0));
      }
      if (!request.reuse_reference_keys) return passes * steps * pass(text_length, request.tokens() + references, 0);
      return pass(0, references, 0) + passes * steps * pass(text_length, request.tokens(), references);
    }
    case Phase::Decode: return request.batch * decode_flop(vae, request.width, request.height) / rates.decode;
    default: return 0;
  }
}

ModelRates rates_for(const Engine& engine, const Rehearsal& r, const Request& request) {
  const int64_t references = request.reuse_reference_keys ? 0 : request.reference_tokens();
  return measure_rates(engine, {.transformer = &r.transformer->network->config,
                                .text_encoder = r.encoder ? &r.encoder->network->config : nullptr,
                                .vae = &r.vae->network->config,
                                .tokens = r.session.models.text_length + request.tokens() + references,
                                .text_tokens = r.session.models.text_length,
                                .side = std::min(request.width, request.height),
                                .encodes = request.canvas || request.reference_tokens() > 0});
}

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

void Forecast::add(const Forecast& pass, int times) {
  for (const PhaseForecast& other : pass.phases) {
    if (other.phase == Phase::Load || other.phase == Phase::Text) continue;
    auto at = std::find_if(phases.begin(), phases.end(), [&](const PhaseForecast& p) { return p.phase >= other.phase; });
    if (at == phases.end() || at->phase != other.phase) {  // only later passes have a start image to encode
      at = phases.insert(at, other);
      at->seconds = 0;
    }
    at->seconds += times * other.seconds;
  }
}

WorkingBytes working_bytes(const Engine& engine, const ModelFiles& files, const Request& request) {
  Rehearsal rehearsal(engine, files, request);
  return Phases(rehearsal, engine, request).working(rehearsal);
}

CountedTransformer counted_transformer(const Engine& engine, const ModelFiles& files) {
  CountedTransformer result{.device = open_plan_device(engine.device()), .network = {}, .weights = {}};
  const NamedWeights weights(open_weights(files.transformer), ModelPart::Transformer);
  const Counted<Flux2Transformer> counted(detect_flux2(weights), weights, *result.device, engine, engine.quant());
  result.network = counted.network;
  result.weights = counted.bytes;
  return result;
}

namespace {

CountedTransformer counted_geometry(std::shared_ptr<Device> device, const Flux2Config& config, Quant quant, DType activations) {
  CountedTransformer result{.device = std::move(device), .network = std::make_shared<Flux2Transformer>(config), .weights = {}};
  const auto stream = result.device->open_stream();
  BlockNumbers numbers;
  result.network->visit([&](const Parameter& p) {
    p.tensor = Tensor::empty(*stream, loaded_dtype(p, DType::BF16, quant, activations), p.shape);
    const auto block = numbers.of(p.name);
    result.weights.blocks.resize(numbers.count());
    (block ? result.weights.blocks[*block] : result.weights.outside) += p.tensor.bytes();
  });
  return result;
}

}  // namespace

CountedTransformer counted_transformer(const Engine& engine, const Flux2Config& config) {
  return counted_geometry(open_plan_device(engine.device()), config, engine.quant(), engine.activations());
}

CountedTransformer counted_on_gpu(const Flux2Config& config, Quant quant) {
  return counted_geometry(open_plan_gpu({}), config, quant, DType::BF16);
}

int64_t overhead_bytes(const Engine& engine) { return engine.device().is_host() ? kOnHostBytes + program_bytes() : kOnGpuBytes; }

namespace {

// `rates_of` gives the rates for a rehearsal; without rates there are no times.
template <class RatesOf>
Forecast forecast_with(const Engine& engine, const ModelFiles& files, const Request& request, const RatesOf& rates_of) {
  Rehearsal rehearsal(engine, files, request);
  Forecast result{.device = engine.device().name() + ": " + engine.device().description(), .memory = engine.device().memory()};
  const Phases phases(rehearsal, engine, request);
  const NetworkBytes &encoder = rehearsal.encoder_bytes(), &transformer = rehearsal.transformer->bytes;
  result.placement = engine.place(encoder, transformer, phases.working(rehearsal));
  result.phases = result.placement.tiles ? phases.tiled : phases.whole;
  result.decode_tile = result.placement.tiles ? kDecodeTile : std::max<int64_t>(0, engine.options().decode_tile);
  result.limit = engine.options().memory_limit > 0 ? engine.options().memory_limit : result.memory.available;
  result.adapters = rehearsal.adapters;
  result.where = result.placement.str(transformer);

  const bool host = engine.device().is_host();
  const std::optional<ModelRates> rates = rates_of(rehearsal);
  const int64_t always = rehearsal.vae->bytes.total() + rehearsal.adapters + (host ? kOnHostBytes : kOnGpuBytes);
  const int64_t program = host ? program_bytes() : 0;
  const int64_t e = encoder.with_resident(result.placement.encoder_blocks);
  const int64_t t = transformer.with_resident(result.placement.transformer_blocks);
  for (PhaseForecast& p : result.phases) {
    const bool text = p.phase == Phase::Text, alone = result.placement.encoder_leaves;
    p.weights = always + (text || !alone ? e : 0) + (!text || !alone ? t : 0);
    p.program = program;
    if (rates) p.seconds = seconds_of(rehearsal, request, *rates, p.phase);
  }
  return result;
}

}  // namespace

Forecast forecast(const Engine& engine, const ModelFiles& files, const Request& request) {
  return forecast_with(engine, files, request, [&](const Rehearsal& r) { return rates_for(engine, r, request); });
}

Forecast forecast(const Engine& engine, const ModelFiles& files, const Request& request, const ModelRates& rates) {
  return forecast_with(engine, files, request, [&](const Rehearsal&) { return rates; });
}

Forecast forecast_memory(const Engine& engine, const ModelFiles& files, const Request& request) {
  return forecast_with(engine, files, request, [](const Rehearsal&) { return std::nullopt; });
}

}  // namespace flux2
