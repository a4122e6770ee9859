#pragma once

#include <memory>
#include <span>
#include <string>

#include "cli/picture_maker.h"

namespace flux2 {

// Keeps the model used last in memory: requests for the same files on the same device find it there.
class ModelKeeper {
 public:
  // The console of `run` and the display must outlive it.
  ModelKeeper(const Invocation& run, ProgressDisplay& display) : run_(run), display_(display) {}

  // What the options that decide about a loaded model say; requests of equal keys share one, whatever adapters they use.
  static std::string key_of(const Settings& settings, const ModelFiles& model);

  // A maker for that model, loaded. `requests` as in PictureMaker::load.
  PictureMaker& maker_for(const Settings& settings, const ModelFiles& model, std::span<const ResolvedRequest> requests);
  PictureMaker* maker() const { return maker_.get(); }  // the one in memory

 private:
  Invocation run_;  // with the settings of the last request
  ProgressDisplay& display_;
  std::unique_ptr<PictureMaker> maker_;
  std::string key_;
};

}  // namespace flux2
