#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "hub/convert_plan.h"

namespace flux2 {

struct ConvertOptions {
  std::filesystem::path out;
  // `out` is one, as diffusers and transformers read it: weights, where many an index, config.json. The result replaces a model
  // that the folder holds under the same file names, whatever number of files it has.
  bool as_folder = false;
  ConvertChoice choice;
  int threads = 0;
  // Called after each tensor. Returning false stops the conversion; a later call with the same choices continues it.
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes, const std::string& tensor)> progress = {};
};

// The result for a tensor whose type changed.
struct ConvertedTensor {
  std::string name;
  std::string from, to;
  double error = 0;  // ‖stored − original‖ / ‖original‖
};

struct ConvertReport {
  uint64_t bytes = 0, resumed_from = 0;
  size_t tensors = 0;
  std::vector<ConvertedTensor> changed;  // of this run; not those an earlier attempt has written
  double total_error = 0;                // of all of them together
};

// Writes a part of a model in another layout or with other types. It works row by row, so it needs little memory besides the
// mapped files. The file gets its name when it is complete, and an interrupted run continues where it stopped.
ConvertReport convert_model(const NamedWeights& weights, const ConvertOptions& options, const Log& log = {});

}  // namespace flux2
