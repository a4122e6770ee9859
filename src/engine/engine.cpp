#include "engine/engine.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_features.h"
#include "base/json.h"
#include "engine/backends.h"
#include "nn/load.h"

namespace flux2 {

namespace {

std::shared_ptr<Device> open_device(const EngineOptions& options) {
  const std::string& name = options.device;
  const auto plans = options.profile == Profile::Exact ? std::filesystem::path{} : options.plan_folder;
  const auto cpu = [&] { return open_cpu({.threads = options.threads, .profile = options.profile}); };
  if (name == "cpu") return cpu();
  if (name == "auto") return gpu_count() > 0 ? open_gpu(0, plans) : cpu();
  int index = 0;
  if (name != "cuda") {
    const bool numbered = name.starts_with("cuda:");
    const char* end = name.data() + name.size();
    const auto parsed = numbered ? std::from_chars(name.data() + 5, end, index) : std::from_chars_result{name.data(), std::errc::invalid_argument};
    check(parsed.ec == std::errc() && parsed.ptr == end, "device \"{}\" is not one of auto, cpu, cuda, cuda:N", name);
  }
  if (gpu_count() > 0 && index >= gpu_count())
    fail(ErrorCode::Device, "cuda:{} does not exist: this machine has {} GPU(s)", index, gpu_count());
  return open_gpu(index, plans);
}

// What a GPU needs beside the weights: activations of a large picture, the autoencoder, workspaces.
constexpr int64_t kWorkingBytes = int64_t{4} << 30;

struct LoadSettings {
  DType activations;
  Quant quant;
  int threads;

  LoadOptions on(Stream& stream) const {
    return {.stream = stream, .activations = activations, .quant = quant, .threads = threads};
  }
};

// config.json beside the weights carries what shapes cannot tell.
void read_qwen3_config(const std::filesystem::path& weights, Qwen3Config& config) {
  const auto folder = std::filesystem::is_directory(weights) ? weights : weights.parent_path();
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return;
  const Json json = read_json(path);
  config.norm_eps = json.value("rms_norm_eps", config.norm_eps);
  config.rope_theta = json.value("rope_theta", config.rope_theta);
  if (json.contains("rope_parameters") && json["rope_parameters"].is_object())
    config.rope_theta = json["rope_parameters"].value("rope_theta", config.rope_theta);
}

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

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(options), device_(open_device(options)) {
  if (options_.quant != Quant::None && !device_->is_host())
    throw Error(ErrorCode::InvalidArgument, fmt::format("--quant {} is not available on {} yet", name_of(options_.quant), device_->name()),
                "use --device cpu, or leave it out");
}

DType Engine::activations() const {
  return device_->is_host() || options_.profile == Profile::Exact ? DType::F32 : DType::BF16;
}

std::unique_ptr<LoadedModel> Engine::empty_model() const {
  auto model = std::make_unique<LoadedModel>();
  Session& session = model->session;
  session.stream = device_->open_stream();
  session.log = options_.log;
  session.activations = activations();
  return model;
}

namespace {

// A network whose weights were found complete, to be loaded when it is wanted.
template <class Network>
Resident<Network> resident(const char* what, const NamedWeights& weights, const typename Resident<Network>::Config& config,
                           const std::shared_ptr<Stream>& stream, const LoadSettings& settings) {
  const auto build = [config] { return std::make_shared<Network>(config); };
  const auto visit_of = [](Network& network) {
    return [&network](const ParameterVisitor& visitor) { network.visit(visitor); };
  };
  const std::string context = std::string("loading the ") + what;
  in_context(context, [&] { check_parameters(weights, visit_of(*build())); });
  return {config, [=] {
            return in_context(context, [&]() -> std::shared_ptr<const Network> {
              auto network = build();
              load_parameters(weights, settings.on(*stream), visit_of(*network));
              return network;
            });
          }};
}

}  // namespace

bool Engine::fits_whole(const WeightSource& transformer, const WeightSource& encoder) const {
  // Copies in ordinary memory are made only when quantising; what is mapped comes and goes by itself.
  if (device_->is_host()) return options_.quant == Quant::None;
  const auto bytes = static_cast<int64_t>(transformer.total_bytes() + encoder.total_bytes());
  return bytes + kWorkingBytes <= device_->memory().available;
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
  const LoadSettings settings{session.activations, options_.quant, options_.threads};
  const auto open = [&](const std::filesystem::path& path, ModelPart part) {
    return NamedWeights(open_weights(path, options_.log), part);
  };

  std::optional<NamedWeights> encoder_weights, transformer_weights;
  if (parts.text_encoder) {
    models.tokenizer = std::make_shared<BpeTokenizer>(BpeTokenizer::load(files.tokenizer));
    encoder_weights = open(files.text_encoder, ModelPart::TextEncoder);
    const Qwen3Config config =
        in_context("loading the text encoder", [&] { return text_encoder_config(files, *encoder_weights); });
    models.text_encoder = resident<Qwen3Encoder>("text encoder", *encoder_weights, config, session.stream, settings);
  }
  if (parts.transformer) {
    transformer_weights = open(files.transformer, ModelPart::Transformer);
    const Flux2Config config = in_context("loading the transformer", [&] { return detect_flux2(*transformer_weights); });
    models.transformer = resident<Flux2Transformer>("transformer", *transformer_weights, config, session.stream, settings);
  }
  if (parts.vae) {
    const NamedWeights weights = open(files.vae, ModelPart::Autoencoder);
    const VaeConfig config = in_context("loading the autoencoder", [&] { return detect_vae(weights); });
    models.vae = resident<Vae>("autoencoder", weights, config, session.stream, settings).get();
    step();
  }

  std::vector<std::filesystem::path> ahead;  // in the order they will be wanted
  for (const auto* weights : {&encoder_weights, &transformer_weights})
    if (*weights)
      for (const auto& file : files_of((*weights)->source())) ahead.push_back(file->path());
  loaded->read_ahead = std::make_unique<ReadAhead>(std::move(ahead));

  const bool together = !(encoder_weights && transformer_weights) ||
                        fits_whole(transformer_weights->source(), encoder_weights->source());
  if (encoder_weights && (!together || device_->is_host()))
    session.text_done = [encoder = models.text_encoder, weights = *encoder_weights, &session] {
      if (!encoder.is_loaded()) return;
      const auto network = encoder.get();
      std::erase_if(session.captured_work, [&](const CapturedWork& work) { return work.model == network; });
      encoder.let_go();
      forget_pages(weights.source());
    };
  if (together && models.text_encoder) models.text_encoder.get(), step();
  if (together && models.transformer) models.transformer.get(), step();
  if (!together) progress.at(Phase::Load, count, count);

  if (options_.profile == Profile::Fast && parts.vae)
    session.decode_in_f32 = [files, options = options_](const Tensor& tokens, int64_t rows, int64_t columns) {
      EngineOptions exact = options;
      exact.profile = Profile::Exact;
      const auto again = Engine(exact).load(files, {}, {.transformer = false, .text_encoder = false});
      return again->models.vae->decode(tokens.to(*again->session.stream), rows, columns);
    };
  return loaded;
}

Qwen3Config text_encoder_config(const ModelFiles& files, const NamedWeights& weights) {
  Qwen3Config config = detect_qwen3(weights);
  read_qwen3_config(files.text_encoder, config);
  config.states = files.defaults.text_layers;
  return config;
}

MemoryUse Engine::memory_use(const LoadedModel& model) const {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.peak_resident = static_cast<int64_t>(usage.ru_maxrss) * 1024,
          .peak_device = static_cast<int64_t>(model.session.stream->peak_bytes())};
}

std::string cpu_summary() { return cpu_name() + " (" + CpuFeatures::detect().str() + ")"; }

std::vector<DeviceReport> list_devices() {
  std::vector<DeviceReport> reports = {{"cpu", open_cpu()->description(), true}};
  for (DeviceReport& r : gpu_reports()) reports.push_back(std::move(r));
  return reports;
}

}  // namespace flux2
