#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "tensor/shape.h"
#include "weights/gguf_format.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// One metadata value of a GGUF file. Arrays may be large (a vocabulary); they stay in the mapped file and are read on request.
struct GgufValue {
  GgufValueType type = GgufValueType::U8;
  GgufValueType element = GgufValueType::U8;  // of an array
  uint64_t count = 0;                         // of an array
  std::span<const std::byte> bytes;           // the value; of a string its text, of an array all elements

  std::string text() const;                         // of a scalar or string; of an array what it holds: "i32 × 4"
  std::optional<uint64_t> unsigned_number() const;  // empty when it is not a whole number ≥ 0
  std::vector<int64_t> integers() const;            // of an array of whole numbers; empty for others
  std::vector<std::string> strings() const;         // of an array of strings; empty for others
};

// The header of a GGUF file, checked: names and keys are unique, every tensor of a known type lies inside the file.
struct GgufHeader {
  struct Entry {
    std::string name;
    uint32_t type = 0;
    Shape shape;          // outermost axis first
    uint64_t offset = 0;  // relative to the start of the data
    uint64_t size = 0;    // bytes; 0 for types whose layout we do not know
  };

  uint32_t version = 0;
  std::map<std::string, GgufValue> values;
  std::vector<Entry> tensors;  // in the order of the file's list
  uint64_t data_start = 0;
};

// Throws BadFile with a specific message for each kind of damage.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const Log& log, const WeightLimits& limits = {});

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
