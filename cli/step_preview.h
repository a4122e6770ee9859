#pragma once

#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/show.h"
#include "engine/engine.h"
#include "pipeline/preview.h"

namespace flux2 {

// Shows what a run is about to become after each step: in the terminal (--show-steps) and as a file (--preview-file).
class StepPreview {
 public:
  static bool wanted(const Settings& settings);

  // The console of `run` and the session must outlive it.
  StepPreview(Invocation& run, ModelSession& session);

  void step_done(const StepDone& step);

 private:
  Invocation& run_;
  ModelSession& session_;
  bool full_;
  std::optional<LatentColours> colours_;
  std::optional<Screen> screen_;
  std::filesystem::path file_;
};

}  // namespace flux2
