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
#include "app/image_prompt_features.h"
#include "app/resolve.h"
#include "app/step_preview.h"
#include "app/text_cache.h"
#include "engine/engine.h"

namespace flux2 {

struct TinyDecoder;

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

  // Bytes that other models hold: a memory limit is one of all models together. Before load().
  void set_taken_elsewhere(int64_t bytes) { taken_elsewhere_ = bytes; }
  // Called when memory runs out, before the maker itself does with less: frees what others hold and returns whether that was
  // anything.
  void set_memory_relief(std::function<bool()> relief) { memory_relief_ = std::move(relief); }

  // The requests that come next in place of those before, some of which may never run because their job was cancelled: only the
  // prompts of these are encoded together. load() and change_files() do the same.
  void expect(std::span<const ResolvedRequest> requests);

  // Uses other files with the same engine. Networks whose files did not change stay in memory.
  void change_files(ModelFiles files, std::span<const ResolvedRequest> requests, const Progress& progress = {});

  // Within a memory limit of the CPU, which nothing but the placement keeps: places the model again if these requests need more
  // memory than those before. Throws OutOfMemory if no placement fits; the model is then unloaded.
  void make_room_for(std::span<const ResolvedRequest> requests, const Progress& progress = {});

  // If memory runs out, it tries once more with smaller pieces of work; images that were already delivered are not generated
  // again. If the context has safety checks, requests and images are checked here, and previews are not made while images are.
  void make(const ResolvedRequest& resolved, const Deliver& deliver, const Progress& progress = {},
            const OnPreview& on_preview = {});

  // The images of several requests as one batch. The functions also receive which request an image belongs to.
  struct Together {
    std::function<void(size_t request, const Picture& picture, GenerationRecord record)> deliver;
    std::function<void(size_t request, SmallPreview preview, const StepDone& step)> on_preview = {};
    std::function<bool(size_t request, const StepDone& step)> wants_preview = {};  // empty: after every step
    // Called at the end for a request some of whose images the safety check refused; they are not delivered. Empty: thrown.
    std::function<void(size_t request, const Error& error)> refused = {};
  };
  void make_together(std::span<const ResolvedRequest> requests, const Together& calls, const Progress& progress = {});

  const ModelFiles& files() const { return files_; }
  const Engine& engine() const { return *engine_; }
  ModelSession& session() const { return *session_; }
  MemoryUse memory_use() const { return session_ ? engine_->memory_use(*session_) : MemoryUse{}; }
  int64_t peak_bytes() const;  // of the device's memory; on a CPU of the process
  // What the model keeps in memory between requests: on a GPU its pool, on a CPU the files of its weights.
  int64_t held_bytes() const;
  const ImagePromptFeatures& image_prompt_features() const { return image_prompt_features_; }
  // What is kept for later requests: text states, latents of reference images, keys and values of references.
  struct Cache {
    const char* name = "";
    int64_t bytes = 0, limit = 0, hits = 0, misses = 0;
  };
  std::array<Cache, 3> caches() const;
  const PhaseTimes& times() const { return times_; }  // of everything so far
  void record_into(Trace* trace) { trace_ = trace; }  // records later requests; null stops recording

 private:
  class Stopwatch;

  void open(const EngineOptions& options);
  void measure(std::span<const ResolvedRequest> requests);
  void note_prompts(std::span<const ResolvedRequest> requests);
  WorkingBytes needed_by(std::span<const ResolvedRequest> requests) const;
  void load_model(const Progress& progress, const std::shared_ptr<const LoadedModel>& kept = nullptr);
  bool step_down(const Error& error, const Progress& progress);
  std::shared_ptr<const TinyDecoder> tiny_decoder(const RequestSpec& spec);
  std::shared_ptr<const LatentColours> latent_colours();
  void log_phase(const Request& request, Phase phase) const;
  bool passes(Picture& picture, GenerationRecord& record, const ResolvedRequest& resolved, const Progress& progress) const;
  GenerationRecord completed(const ResolvedRequest& resolved, const Picture& picture, const Stopwatch& watch);
  static void show_step(const StepDone& step, std::span<std::optional<StepPreview>> previews,
                        std::span<const ResolvedRequest> requests, std::span<const int> delivered, const Together& calls);

  const AppContext& context_;
  ModelFiles files_;
  RequestSpec spec_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ModelSession> session_;  // after the engine, so that it is destroyed first
  std::vector<std::string> prompts_;       // of the requests to come, where they are worth encoding together
  WorkingBytes working_ = LoadParts{}.working;
  std::string storage_, model_sha256_;  // of the transformer, as records name them
  std::filesystem::path hashes_;        // where hashes of files are remembered
  std::optional<TextCache> text_cache_;
  PhaseTimes times_;
  Trace* trace_ = nullptr;
  int64_t taken_elsewhere_ = 0;
  std::function<bool()> memory_relief_;
  bool stepped_down_ = false;
  std::shared_ptr<const TinyDecoder> tiny_decoder_;  // of previews, once one was needed
  std::filesystem::path tiny_decoder_file_;
  std::shared_ptr<const LatentColours> latent_colours_;  // likewise
  ImagePromptFeatures image_prompt_features_;
  bool decodes_only_ = false;  // the requests are saved latents: the autoencoder is the only network that is loaded
};

// Whether the images of two requests can be one batch: they use the same adapters and no image prompts, and differ in prompts,
// seeds and the number of images alone.
bool can_make_together(const ResolvedRequest& a, const ResolvedRequest& b);

}  // namespace flux2
