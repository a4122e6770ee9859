#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "tensor/shape.h"
#include "weights/gguf_format.h"

namespace flux2 {

// One value of a GGUF file. Arrays may be large (a vocabulary); they stay where they lie and are read when asked for.
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

// Throws BadFile with a sentence of its own for each way to be wrong.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const Log& log);

}  // namespace flux2
