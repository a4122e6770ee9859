#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "weights/gguf_header.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// One GGUF file: its tensors in the order of the list, under PyTorch shapes, and its values. Opening reads the header and
// checks it against the size of the file, so every `bytes` is inside the file; no tensor data is touched.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path, const Log& log = {});

  // A whole file in memory, which must outlive this object and the tensors taken from it.
  explicit GgufFile(std::span<const std::byte> bytes, const Log& log = {});

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  std::vector<StoredTensor> take_tensors() && { return std::move(tensors_); }
  const GgufHeader& header() const { return header_; }
  std::map<std::string, std::string> metadata() const;  // the values as text, without arrays

 private:
  void read(std::span<const std::byte> bytes, const Log& log);

  std::shared_ptr<const MappedFile> file_;  // keeps arrays of the header alive
  GgufHeader header_;
  std::vector<StoredTensor> tensors_;
};

bool is_gguf(const std::filesystem::path& path);  // by its first bytes; false for what cannot be read

}  // namespace flux2
