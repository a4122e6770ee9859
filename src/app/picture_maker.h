#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/resolve.h"
#include "app/text_cache.h"
#include "engine/engine.h"

namespace flux2 {

class StepPreview;

// Where weights that were quantised while loading are kept (weights/quantised_cache.h); empty without a data folder.
std::filesystem::path quant_cache_folder(const AppContext& context);

// The engine that a request asks for: device, threads, profile, quantisation, memory limits.
EngineOptions engine_options(const RequestSpec& spec, const AppContext& context);

// A model that is loaded once and makes the images of any number of requests.
class PictureMaker {
 public:
  // Receives each image as soon as it is decoded, with the record that its file shall carry.
  using Deliver = std::function<void(const Picture& picture, GenerationRecord record)>;
  // Receives a preview after each step, at most 512 pixels a side. Empty: none are made unless the request names a preview file.
  using OnPreview = std::function<void(const Image& preview, const StepDone& step)>;

  // `spec` determines the engine's options. The context must outlive the maker.
  PictureMaker(const AppContext& context, ModelFiles files, const RequestSpec& spec);

  // Opens the device and the model. `requests` are the requests to come: if memory is short, the largest one determines the
  // placement, and all prompts are encoded together.
  void load(std::span<const ResolvedRequest> requests, const Progress& progress = {});
  bool is_loaded() const { return session_ != nullptr; }

  // Uses other files with the same engine. Networks whose files did not change stay in memory.
  void change_files(ModelFiles files, std::span<const ResolvedRequest> requests, const Progress& progress = {});

  // If memory runs out, it tries once more with smaller pieces of work; images that were already delivered are not generated
  // again.
  void make(const ResolvedRequest& resolved, const Deliver& deliver, const Progress& progress = {},
            const OnPreview& on_preview = {});

  // The images of several requests as one batch. The functions also receive which request an image belongs to.
  struct Together {
    std::function<void(size_t request, const Picture& picture, GenerationRecord record)> deliver;
    std::function<void(size_t request, const Image& preview, const StepDone& step)> on_preview = {};
  };
  void make_together(std::span<const ResolvedRequest> requests, const Together& calls, const Progress& progress = {});

  const ModelFiles& files() const { return files_; }
  const Engine& engine() const { return *engine_; }
  ModelSession& session() const { return *session_; }
  MemoryUse memory_use() const { return session_ ? engine_->memory_use(*session_) : MemoryUse{}; }
  int64_t peak_bytes() const;                         // of the device's memory; on a CPU of the process
  const PhaseTimes& times() const { return times_; }  // of everything so far
  void record_into(Trace* trace) { trace_ = trace; }  // records later requests; null stops recording

 private:
  class Stopwatch;

  void open(const EngineOptions& options);
  void measure(std::span<const ResolvedRequest> requests);
  void load_model(const Progress& progress, std::shared_ptr<const LoadedModel> previous = nullptr);
  bool step_down(const Error& error, const Progress& progress);
  void log_phase(const Request& request, Phase phase) const;
  GenerationRecord completed(const ResolvedRequest& resolved, const Stopwatch& watch);
  static void show_step(const StepDone& step, StepPreview& preview, std::span<const ResolvedRequest> requests,
                        std::span<const int> delivered, const Together& calls);

  const AppContext& context_;
  ModelFiles files_;
  RequestSpec spec_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ModelSession> session_;  // after the engine, so that it is destroyed first
  std::vector<std::string> prompts_;       // of all requests, where they are worth encoding together
  WorkingBytes working_ = LoadParts{}.working;
  std::string storage_, model_sha256_;  // of the transformer, as records name them
  std::filesystem::path hashes_;        // where hashes of files are remembered
  std::optional<TextCache> text_cache_;
  PhaseTimes times_;
  Trace* trace_ = nullptr;
  bool stepped_down_ = false;
  bool decodes_only_ = false;  // the requests are saved latents: the autoencoder is the only network that is loaded
};

// Whether the images of two requests can be one batch: they use the same adapters and differ in prompts, seeds and the number of
// images alone.
bool can_make_together(const ResolvedRequest& a, const ResolvedRequest& b);

// Keeps the model that was used last in memory: requests for the same files on the same device find it there.
class ModelKeeper {
 public:
  explicit ModelKeeper(const AppContext& context) : context_(context) {}

  // Requests of equal keys share a loaded model, whatever adapters they use. Where only the autoencoder or the text encoder
  // differs, the transformer stays in memory.
  static std::string key_of(const RequestSpec& spec, const ModelFiles& model);

  // A maker for that model, loaded. `requests` as in PictureMaker::load.
  PictureMaker& maker_for(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests,
                          const Progress& progress = {});
  PictureMaker* maker() const { return maker_.get(); }  // the one in memory
  void drop();                                          // frees it

 private:
  const AppContext& context_;
  std::unique_ptr<PictureMaker> maker_;
  std::string key_, engine_key_;
};

}  // namespace flux2
