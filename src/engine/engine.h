#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/read_ahead.h"
#include "engine/adapter_rack.h"
#include "engine/placement.h"
#include "hub/model_files.h"
#include "pipeline/text_to_image.h"
#include "tensor/device.h"
#include "weights/quantise.h"

namespace flux2 {

struct EngineOptions {
  std::string device = "auto";        // auto, cpu, cuda, cuda:N
  int threads = 0;                    // of the CPU; 0: one per physical core
  Profile profile = Profile::Fast;
  Quant quant = Quant::None;          // of the matrices inside the blocks of transformer and text encoder
  Offload offload = Offload::Auto;
  int64_t decode_tile = -1;           // positions a side; 0: never in tiles; −1: when memory is short
  int64_t memory_limit = 0;           // bytes of the device (of RAM for the CPU) to stay within; 0: what is available
  std::vector<AdapterChoice> adapters;  // to begin with; those of strength 0 are opened and checked alone
  AdapterMode adapter_mode = AdapterMode::Runtime;
  // Where a GPU remembers which algorithms are fastest; empty: it times none. Profile exact never does.
  std::filesystem::path plan_folder;
  Log log;
};

// Which parts of a model to open.
struct LoadParts {
  bool transformer = true, text_encoder = true, vae = true;
  int64_t working_bytes = int64_t{4} << 30;  // what runs will need beside the weights of the two large networks
};

// A model on a device with a session of its own.
struct LoadedModel {
  ModelFiles files;
  Models models;
  Session session;
  std::shared_ptr<AdapterRack> adapters;  // of the transformer, where one was loaded from files
  std::unique_ptr<ReadAhead> read_ahead;  // of the mapped weights, while the first picture begins
};

struct MemoryUse {
  int64_t peak_resident = 0;  // bytes of this process, mapped weights included
  int64_t peak_device = 0;    // bytes handed out by the device's pool: activations, and weights on a GPU
};

// Turns settings into devices, models and sessions: the one place that names concrete backends.
class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  Device& device() const { return *device_; }
  Profile profile() const { return options_.profile; }
  Quant quant() const { return options_.quant; }
  const EngineOptions& options() const { return options_; }
  // The CPU keeps activations in f32 and rounds them only inside matrix products; a GPU keeps them in bf16.
  DType activations() const;

  // Where the weights of the two large networks go so that they and the working memory stay within the limit.
  Placement place(const NetworkBytes& encoder, const NetworkBytes& transformer, int64_t working_bytes) const;

  // Every file is opened and checked at once. Networks are in memory when this returns, except that where they would not
  // fit beside each other each is loaded when it is needed and the encoder leaves after use; where even one does not fit,
  // its blocks are streamed.
  std::unique_ptr<LoadedModel> load(const ModelFiles& files, const Progress& progress, const LoadParts& parts = {}) const;

  // The adapters of the runs that follow, instead of those before. Pairs of matrices beside the weights change at once; where
  // the weights themselves change the transformer is loaded again at its next use.
  void use_adapters(LoadedModel& model, const std::vector<AdapterChoice>& choices) const;

  // A model of a known variant with random weights that exist on the device alone, without a tokenizer: for measuring.
  // Its networks are made when they are first used.
  std::unique_ptr<LoadedModel> invent(const std::string& variant, const LoadParts& parts = {}) const;

  MemoryUse memory_use(const LoadedModel& model) const;

 private:
  std::unique_ptr<LoadedModel> empty_model() const;  // a session on the device, no networks yet

  EngineOptions options_;
  std::shared_ptr<Device> device_;
};

// The geometry of a model's text encoder: what its weights and the config.json beside them say, and which states are read.
Qwen3Config text_encoder_config(const ModelFiles& files, const NamedWeights& weights);

// One line per device that this build can use here, the CPU first; and per backend that is missing, why.
struct DeviceReport {
  std::string name, description;
  bool usable = true;
};
std::vector<DeviceReport> list_devices();

bool built_with_cuda();     // whether or not a GPU is here
bool gpu_is_there();        // one that this build can use
std::string cpu_summary();  // "Neoverse-V1 (neon bf16 i8mm)"

}  // namespace flux2
