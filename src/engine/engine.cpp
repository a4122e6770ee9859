#include "engine/engine.h"

#include <sys/resource.h>

#include <charconv>
#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_features.h"
#include "engine/backends.h"
#include "engine/cpu_levels.h"
#include "text/prompt.h"

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
    fail(ErrorCode::Device, "cuda:{} does not exist: this machine has {} {}", index, gpu_count(),
         gpu_count() == 1 ? "GPU" : "GPUs");
  return open_gpu(index, plans, options.memory_limit);
}

}  // namespace

namespace {

const EngineOptions& checked_options(const EngineOptions& o) {
  constexpr int kMostThreads = 65536;
  constexpr int64_t kLargestTile = 4096;
  check(o.threads >= 0 && o.threads <= kMostThreads, "{} threads: between 0 and {} are possible", o.threads, kMostThreads);
  check(o.decode_tile >= -1 && o.decode_tile <= kLargestTile, "a tile of {} positions: between -1 and {} are possible",
        o.decode_tile, kLargestTile);
  check(o.memory_limit >= 0, "a memory limit of {} bytes is negative", o.memory_limit);
  for (const AdapterChoice& adapter : o.adapters)
    check(std::isfinite(adapter.strength), "adapter {}: the strength is not a number", adapter.path.string());
  return o;
}

}  // namespace

Engine::Engine(const EngineOptions& options) : options_(checked_options(options)), device_(open_device(options)) {
  if (device_->is_host() && options.quant != Quant::None && !options.quant_cache.folder.empty())
    quant_cache_ = std::make_shared<QuantisedCache>(options.quant_cache, options.log);
  if (options.attention == AttentionBits::Eight && attention() == AttentionBits::Sixteen)
    options.log.warn("attention in fp8 needs {}: it is computed as without it",
                     options.profile == Profile::Exact ? "profile fast" : "an NVIDIA Hopper GPU (H100, H200)");
}

AttentionBits Engine::attention() const {
  const bool can = options_.profile == Profile::Fast && device_->attends_in_8_bits();
  return can ? options_.attention : AttentionBits::Sixteen;
}

DType Engine::activations() const { return device_->is_host() || options_.profile == Profile::Exact ? DType::F32 : DType::BF16; }

std::shared_ptr<LoadedModel> Engine::empty_model() const {
  auto model = std::make_shared<LoadedModel>();
  model->stream = device_->open_stream();
  model->loading = std::make_shared<std::mutex>();
  return model;
}

DecoderConfig text_encoder_config(const ModelFiles& files, const NamedWeights& weights) {
  DecoderConfig config = detect_decoder(weights);
  config.states = files.defaults.text_layers;
  return config;
}

void check_tokenizer(const ModelFiles& files, const BpeTokenizer& tokenizer, const DecoderConfig& encoder) {
  const bool mistral = in_context(files.tokenizer.string(), [&] { return prompt_format(tokenizer); }) == PromptFormat::Mistral;
  if (mistral != (encoder.family == DecoderFamily::Mistral))
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} is a tokenizer of {}, but {} is a text encoder of {}: they do not belong together",
                            files.tokenizer.string(), mistral ? "Mistral" : "Qwen3", files.text_encoder.string(),
                            name_of(encoder.family)),
                Hint("name the encoder's own tokenizer with {0}", {set_option("tokenizer")}));
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
