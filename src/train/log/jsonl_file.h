#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "train/log/append_file.h"

namespace flux2 {

// One JSON object a line.
class JsonlFile {
 public:
  // Without `resumed_step` the file starts empty. With it, lines that are about later steps, and a torn last line, are removed
  // first, so that a curve never shows a step twice; earlier ones stay.
  JsonlFile(const std::filesystem::path& path, std::optional<int64_t> resumed_step);

  const std::filesystem::path& path() const { return file_.path(); }
  void append(const Json& event);  // throws CannotWrite

 private:
  AppendFile file_;
};

}  // namespace flux2
