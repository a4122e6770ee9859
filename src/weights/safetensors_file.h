#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// One safetensors file: its tensors, in the order of their data, and its metadata. Opening reads the header and checks
// it against the size of the file, so every `bytes` is inside the file; no tensor data is touched.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, const Log& log = {});

  // A whole file in memory, which must outlive this object and the tensors taken from it.
  explicit SafetensorsFile(std::span<const std::byte> bytes, const Log& log = {});

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  std::vector<StoredTensor> take_tensors() && { return std::move(tensors_); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void read(std::span<const std::byte> bytes, std::shared_ptr<const MappedFile> file, const Log& log);

  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace flux2
