#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/progress_display.h"
#include "cli/request.h"
#include "engine/engine.h"

namespace flux2 {

// A model that is loaded once and makes the pictures of any number of requests.
class PictureMaker {
 public:
  // Receives each picture as soon as it is decoded, with the record that its file shall carry.
  using Deliver = std::function<void(const Picture& picture, GenerationRecord record)>;

  PictureMaker(Invocation& run, ModelFiles files, ProgressDisplay& display);

  // Opens the device and the model. `requests` is what will be made: where memory is short it matters how much the
  // largest needs.
  void load(std::span<const ResolvedRequest> requests);
  bool is_loaded() const { return session_ != nullptr; }

  // When memory runs out it is tried once more with less at a time; pictures delivered before are not made again.
  void make(const ResolvedRequest& resolved, const Deliver& deliver);

  const ModelFiles& files() const { return files_; }
  const Engine& engine() const { return *engine_; }
  ModelSession& session() const { return *session_; }
  MemoryUse memory_use() const { return session_ ? engine_->memory_use(*session_) : MemoryUse{}; }
  int64_t peak_bytes() const;                         // of the device's memory; on a CPU of the process
  const PhaseTimes& times() const { return times_; }  // of everything so far
  void record_into(Trace* trace) { trace_ = trace; }  // the requests that follow; null: no longer

 private:
  void open(const EngineOptions& options);
  void load_model();
  bool step_down(const Error& error);
  GenerationRecord completed(const ResolvedRequest& resolved);

  Invocation& run_;
  ModelFiles files_;
  ProgressDisplay& display_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ModelSession> session_;  // after the engine, so that it goes first
  std::vector<std::string> prompts_;     // of all requests, where they are worth encoding together
  WorkingBytes working_ = LoadParts{}.working;
  std::string storage_, model_sha256_;  // of the transformer, as records name them
  std::filesystem::path hashes_;        // where those of files are remembered
  std::map<std::filesystem::path, std::string> adapter_hashes_;
  PhaseTimes times_;
  Trace* trace_ = nullptr;
  bool stepped_down_ = false;
};

}  // namespace flux2
