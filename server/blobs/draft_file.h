#pragma once

#include <filesystem>
#include <span>

#include "base/atomic_file.h"

namespace flux2 {

// A file that is written in one folder, where few files are, and then renamed into another, where many are: AtomicFile looks
// through the folder it writes to. Both folders lie on one file system.
class DraftFile {
 public:
  DraftFile(const std::filesystem::path& workspace, std::filesystem::path target);
  ~DraftFile();  // removes the draft unless it was committed

  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  uint64_t size() const { return file_.size(); }
  void commit();

 private:
  std::filesystem::path draft_, target_;
  AtomicFile file_;
  bool committed_ = false;
};

}  // namespace flux2
