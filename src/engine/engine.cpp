#include "engine/engine.h"

#include <sys/resource.h>

#include <charconv>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_features.h"
#include "base/json.h"
#include "engine/backends.h"
#include "engine/cpu_levels.h"

namespace flux2 {

namespace {

std::shared_ptr<Device> open_device(const EngineOptions& options) {
  const std::string& name = options.device;
  const auto plans = options.profile == Profile::Exact ? std::filesystem::path{} : options.plan_folder;
  const auto cpu = [&](const std::string& level = {}) {
    return open_cpu({.threads = options.threads, .profile = options.profile, .level = level});
  };
  if (name == "cpu") return cpu();
  if (name.starts_with("cpu:")) return cpu(name.substr(4));
  if (name == "auto") {
    if (gpu_count() == 0) return cpu();
    const std::string problem = gpu_problem(0);
    if (problem.empty()) return open_gpu(0, plans, options.memory_limit);
    options.log.warn("{}; using the CPU", problem);
    return cpu();
  }
  int index = 0;
  if (name != "cuda") {
    const bool numbered = name.starts_with("cuda:");
    const char* end = name.data() + name.size();
    const auto parsed = numbered ? std::from_chars(name.data() + 5, end, index)
                                 : std::from_chars_result{name.data(), std::errc::invalid_argument};
    check(parsed.ec == std::errc() && parsed.ptr == end, "device \"{}\" is not one of auto, cpu, cuda, cuda:N", name);
  }
  if (gpu_count() > 0 && index >= gpu_count())
    fail(ErrorCode::Device, "cuda:{} does not exist: this machine has {} GPU(s)", index, gpu_count());
  return open_gpu(index, plans, options.memory_limit);
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

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(options), device_(open_device(options)) {
  if (device_->is_host() && options.quant != Quant::None && !options.quant_cache.folder.empty())
    quant_cache_ = std::make_shared<QuantisedCache>(options.quant_cache, options.log);
}

DType Engine::activations() const { return device_->is_host() || options_.profile == Profile::Exact ? DType::F32 : DType::BF16; }

std::shared_ptr<LoadedModel> Engine::empty_model() const {
  auto model = std::make_shared<LoadedModel>();
  model->stream = device_->open_stream();
  model->loading = std::make_shared<std::mutex>();
  return model;
}

Qwen3Config text_encoder_config(const ModelFiles& files, const NamedWeights& weights) {
  Qwen3Config config = detect_qwen3(weights);
  read_qwen3_config(files.text_encoder, config);
  config.states = files.defaults.text_layers;
  return config;
}

MemoryUse Engine::memory_use(const Session& session) const {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.peak_resident = static_cast<int64_t>(usage.ru_maxrss) * 1024,
          .peak_device = static_cast<int64_t>(session.stream->peak_bytes())};
}

std::vector<std::string> cpu_levels() {
  std::vector<std::string> names;
  for (const CpuLevel& level : levels_of(CpuFeatures::detect())) names.push_back(level.name);
  return names;
}

bool gpu_is_there() { return gpu_count() > 0 && gpu_problem(0).empty(); }

std::string cpu_summary() { return cpu_name() + " (" + CpuFeatures::detect().str() + ")"; }

std::vector<DeviceReport> list_devices() {
  std::vector<DeviceReport> reports = {{"cpu", open_cpu()->description(), true}};
  for (DeviceReport& r : gpu_reports()) reports.push_back(std::move(r));
  return reports;
}

}  // namespace flux2
