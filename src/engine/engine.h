#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/read_ahead.h"
#include "engine/placement.h"
#include "engine/session_adapters.h"
#include "hub/model_files.h"
#include "model/flux2_blocks.h"
#include "pipeline/text_to_image.h"
#include "tensor/device.h"
#include "weights/quantise.h"
#include "weights/quantised_cache.h"

namespace flux2 {

struct EngineOptions {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // of the CPU; 0: one per physical core
  Profile profile = Profile::Fast;
  Quant quant = Quant::None;                // of the matrices inside the blocks of transformer and text encoder
  std::optional<Quant> encoder_quant = {};  // of the text encoder's; empty: the same
  // Of the transformer's attention. AsWeights: in 8 bits where its weights are fp8. Without a device that can do it, and in
  // profile exact, it is never in 8 bits; Engine::Engine warns if Eight was asked for.
  AttentionBits attention = AttentionBits::Sixteen;
  Offload offload = Offload::Auto;
  size_t streamed_blocks = 0;  // the last blocks of the transformer, which are streamed even if they fit
  // Blocks of the transformer that are streamed, by number; if there are any, they are the only ones. Training chooses them.
  std::vector<size_t> chosen_blocks = {};
  int64_t decode_tile = -1;    // positions a side; 0: never in tiles; −1: when memory is short
  bool decode_in_f32 = false;  // as profile exact does
  // The memory limit in bytes: of the device or, on a CPU, of the whole process. 0: what is available. On a CPU, load() rejects a
  // model that cannot run within the limit.
  int64_t memory_limit = 0;
  std::vector<AdapterChoice> adapters;  // initial adapters; those with strength 0 are only opened and checked
  AdapterMode adapter_mode = AdapterMode::Runtime;
  // The folder where a GPU stores which algorithms are fastest. Empty: nothing is timed. Profile exact never times.
  std::filesystem::path plan_folder;
  QuantisedCacheOptions quant_cache;  // of weights that are quantised for the CPU
  bool log_prompts = false;           // whether messages may quote prompts
  Log log;
};

// Which parts of a model to open.
struct LoadParts {
  bool transformer = true, text_encoder = true, vae = true;
  WorkingBytes working = {int64_t{4} << 30, int64_t{4} << 30};  // see working_bytes() in forecast.h
};

// The files of one network at the time it was loaded, and how much of it stays in memory.
struct LoadedPart {
  struct File {
    std::filesystem::path path;
    std::filesystem::file_time_type time;
    size_t bytes = 0;
    bool operator==(const File&) const = default;
  };

  std::shared_ptr<const NamedWeights> weights;  // null for a part that was not loaded from files
  std::vector<File> files;
  size_t resident_blocks = 0, blocks = 0;

  bool is_streamed() const { return resident_blocks < blocks; }
};

// A model on a device. It does not change once it is loaded, and any number of sessions share it, on any threads. The two large
// networks load at their first use. Engine::open_session() creates what is needed to run it.
struct LoadedModel {
  ModelFiles files;
  Models models;
  LoadedPart transformer, text_encoder, vae;
  Placement placement;
  bool encoder_leaves = false;            // the text encoder is unloaded once a prompt is encoded
  std::shared_ptr<Stream> stream;         // used to copy weights to the device
  std::shared_ptr<std::mutex> loading;    // held while that stream is used
  std::unique_ptr<ReadAhead> read_ahead;  // of the mapped weights, while the first image starts
};

// A session on a model: a stream, caches, captured work and adapters of its own. One thread uses it at a time. Sessions on one
// model may run at the same time, because what they share is immutable. Blocks that are streamed to a GPU are copied for each
// session separately, so every session takes the memory of two blocks.
struct ModelSession : Session {
  std::shared_ptr<const LoadedModel> model;
  std::shared_ptr<SessionAdapters> adapters;  // null without a transformer
  LoadedPart::File image_prompt_file = {};    // that Session::image_prompt was loaded from
};

struct MemoryUse {
  int64_t peak_resident = 0;  // bytes of this process, mapped weights included
  int64_t peak_device = 0;    // bytes handed out by the device's pool: activations, and weights on a GPU
};

// Turns settings into devices, models and sessions. This is the only place that names concrete backends.
class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  Device& device() const { return *device_; }
  Profile profile() const { return options_.profile; }
  Quant quant() const { return options_.quant; }
  Quant encoder_quant() const { return options_.encoder_quant.value_or(options_.quant); }
  const EngineOptions& options() const { return options_; }
  // How the transformer's attention rounds here: what the options ask for if this device and profile can do it.
  AttentionBits attention() const;
  // The CPU keeps activations in f32 and rounds them only inside matrix products; a GPU keeps them in bf16.
  DType activations() const;

  // Decides where the weights of the two large networks go, so that they and the working memory stay within the limit.
  Placement place(const NetworkBytes& encoder, const NetworkBytes& transformer, const WorkingBytes& working) const;

  // Every file is opened and checked at once. Networks are in memory when this returns, with two exceptions. If they do not fit
  // together, each is loaded when it is needed and the text encoder is unloaded after use. If even one does not fit, its blocks
  // are streamed. Networks whose files are the same in `previous`, which this engine loaded, are taken from it.
  std::shared_ptr<const LoadedModel> load(const ModelFiles& files, const Progress& progress, const LoadParts& parts = {},
                                          const std::shared_ptr<const LoadedModel>& previous = nullptr) const;

  // A session with the adapters of the engine's options.
  std::unique_ptr<ModelSession> open_session(std::shared_ptr<const LoadedModel> model) const;

  // Both at once, for a program that needs one session.
  std::unique_ptr<ModelSession> open(const ModelFiles& files, const Progress& progress = {}, const LoadParts& parts = {}) const {
    return open_session(load(files, progress, parts));
  }

  // Replaces the adapters of a session for the runs that follow. Other sessions on the model are not affected. LoRA strengths
  // change immediately; adapters of other kinds are merged into copies of the weights at the next use of the transformer.
  void use_adapters(ModelSession& session, const std::vector<AdapterChoice>& choices) const;

  // A model of a known variant with random weights, on the device and without a tokenizer, for measurements. Its networks are
  // created when they are first used. On a GPU, chosen_blocks of the transformer are kept on the host.
  std::shared_ptr<const LoadedModel> random_model(const std::string& variant, const LoadParts& parts = {}) const;

  MemoryUse memory_use(const Session& session) const;

 private:
  int64_t cache_limit() const;
  std::shared_ptr<LoadedModel> empty_model() const;  // on the device, no networks yet

  EngineOptions options_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<QuantisedCache> quant_cache_;  // null where nothing is cached
};

// The geometry of a model's text encoder, from its weights and the config.json next to them, and which states are read.
DecoderConfig text_encoder_config(const ModelFiles& files, const NamedWeights& weights);

// Throws Incompatible if the tokenizer belongs to a text encoder of another family.
void check_tokenizer(const ModelFiles& files, const BpeTokenizer& tokenizer, const DecoderConfig& encoder);

// One entry per device that this build can use here, the CPU first, and one per missing backend with the reason.
struct DeviceReport {
  std::string name, description;
  bool usable = true;
};
std::vector<DeviceReport> list_devices();

bool built_with_cuda();     // whether or not a GPU is here
bool gpu_is_there();        // one that this build can use
std::string cpu_summary();  // "Neoverse-V1 (neon dotprod bf16 i8mm)"

}  // namespace flux2
