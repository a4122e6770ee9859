#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/context.h"
#include "hub/model_files.h"
#include "pipeline/session.h"

namespace flux2 {

// Where text states are kept; empty without a data folder.
std::filesystem::path text_cache_folder(const AppContext& context);

// Text states on disk, so that a prompt that was encoded by an earlier run needs no text encoder. One safetensors file a prompt,
// named after a hash of everything that decides the states. Above the limit the files that were not used for the longest time go.
class TextCache {
 public:
  // `how` names what else decides the states: device, profile, quantisation.
  TextCache(std::filesystem::path folder, int64_t limit_bytes, const ModelFiles& model, const std::string& how,
            const std::filesystem::path& hashes);

  // Puts the states into the session's cache if they are stored. True when they are there afterwards.
  bool bring(Session& session, const std::string& prompt) const;
  // Stores the states that the session's cache holds, unless they are stored already.
  void keep(Session& session, const std::string& prompt) const;

 private:
  std::filesystem::path file_of(const std::string& prompt) const;

  std::filesystem::path folder_;
  int64_t limit_ = 0;
  std::string identity_;
};

}  // namespace flux2
