#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/context.h"
#include "hub/model_files.h"
#include "pipeline/session.h"

namespace flux2 {

// The folder for text states; empty if flux2 has no data folder.
std::filesystem::path text_cache_folder(const AppContext& context);

// Text states on disk, so that a prompt that was encoded by an earlier run needs no text encoder. One safetensors file for each
// prompt, named by a hash of everything that the states depend on. Above the limit, the least recently used files are deleted.
class TextCache {
 public:
  // `how` names what else the states depend on: device, profile, quantisation.
  TextCache(std::filesystem::path folder, int64_t limit_bytes, const ModelFiles& model, const std::string& how,
            const std::filesystem::path& hashes);

  // Loads stored states into the session's cache. Returns whether the cache has them now.
  bool bring(Session& session, const std::string& prompt) const;
  // Stores the states of the session's cache, unless they are stored already.
  void keep(Session& session, const std::string& prompt) const;

 private:
  std::filesystem::path file_of(const std::string& prompt) const;

  std::filesystem::path folder_;
  int64_t limit_ = 0;
  std::string identity_;
};

}  // namespace flux2
