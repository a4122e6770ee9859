#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "tensor/shape.h"

namespace flux2 {

inline constexpr uint64_t kMaxSafetensorsHeader = WeightLimits{}.header_bytes;

// The header of a safetensors file, checked: names are unique, every tensor of a known type has the bytes its shape
// needs, and the tensors follow one another without gap or overlap from byte 0 of the data.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;
    Shape shape;
    uint64_t begin = 0, end = 0;  // bytes, relative to the start of the data
  };

  std::vector<Entry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;

  uint64_t data_size() const { return tensors.empty() ? 0 : tensors.back().end; }
};

// Parses the JSON text. Throws BadFile with a specific message for each kind of damage. Metadata values that are not strings are
// ignored with a warning.
SafetensorsHeader parse_safetensors_header(std::string_view json, const Log& log);

}  // namespace flux2
