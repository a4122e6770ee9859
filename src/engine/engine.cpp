#include "engine/engine.h"

#include <sys/resource.h>

#include <charconv>
#include <set>

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

NamedWeights open_part(const std::filesystem::path& path, ModelPart part, const Log& log) {
  return {open_weights(path, log), part};
}

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

// Once a prompt is encoded its encoder is the largest thing in memory and idle: the system may have the pages back.
// They are read again, usually from its cache, when another prompt comes.
void forget_pages(const WeightSource& source) {
  std::set<const MappedFile*> files;
  for (const StoredTensor& t : source.tensors())
    if (t.file && files.insert(t.file.get()).second) t.file->drop(0, t.file->bytes().size());
}

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(options), device_(open_device(options)) {}

std::unique_ptr<LoadedModel> Engine::empty_model() const {
  auto model = std::make_unique<LoadedModel>();
  Session& session = model->session;
  session.stream = device_->open_stream();
  session.log = options_.log;
  // The CPU keeps activations in f32 and rounds them only inside matrix products; a GPU keeps them in bf16.
  session.activations = device_->is_host() || options_.profile == Profile::Exact ? DType::F32 : DType::BF16;
  return model;
}

std::unique_ptr<LoadedModel> Engine::load(const ModelFiles& files, const Progress& progress, const LoadParts& parts) const {
  const int count = parts.transformer + parts.text_encoder + parts.vae;
  int done = 0;
  progress.at(Phase::Load, 0, count);

  auto loaded = empty_model();
  loaded->files = files;
  loaded->models.text_length = files.defaults.text_length;
  Session& session = loaded->session;
  const LoadOptions load{.stream = *session.stream, .activations = session.activations};

  const auto open = [&](const char* what, const std::filesystem::path& path, ModelPart part, auto&& build) {
    return in_context(std::string("loading the ") + what, [&] {
      const NamedWeights weights = open_part(path, part, options_.log);
      auto model = build(weights);
      load_parameters(weights, load, [&](const ParameterVisitor& visitor) { model->visit(visitor); });
      progress.at(Phase::Load, ++done, count);
      return model;
    });
  };
  if (parts.text_encoder) {
    loaded->models.tokenizer = std::make_shared<BpeTokenizer>(BpeTokenizer::load(files.tokenizer));
    loaded->models.text_encoder = open("text encoder", files.text_encoder, ModelPart::TextEncoder, [&](const NamedWeights& weights) {
      Qwen3Config config = detect_qwen3(weights);
      read_qwen3_config(files.text_encoder, config);
      config.states = files.defaults.text_layers;
      if (device_->is_host()) session.text_done = [weights] { forget_pages(weights.source()); };
      return std::make_shared<Qwen3Encoder>(config);
    });
  }
  if (parts.transformer)
    loaded->models.transformer = open("transformer", files.transformer, ModelPart::Transformer, [&](const NamedWeights& weights) {
      return std::make_shared<Flux2Transformer>(detect_flux2(weights));
    });
  if (parts.vae)
    loaded->models.vae = open("autoencoder", files.vae, ModelPart::Autoencoder,
                              [&](const NamedWeights& weights) { return std::make_shared<Vae>(detect_vae(weights)); });

  if (options_.profile == Profile::Fast && parts.vae)
    session.decode_in_f32 = [files, options = options_](const Tensor& tokens, int64_t rows, int64_t columns) {
      EngineOptions exact = options;
      exact.profile = Profile::Exact;
      const auto again = Engine(exact).load(files, {}, {.transformer = false, .text_encoder = false});
      return again->models.vae->decode(tokens.to(*again->session.stream), rows, columns);
    };
  return loaded;
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
