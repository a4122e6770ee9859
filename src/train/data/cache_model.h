#pragma once

#include <cstdint>
#include <string>

namespace flux2 {

// What a cache depends on besides the data: the model's name in file names and metadata, and the shape of its text states.
struct CacheModel {
  std::string suffix;       // "f2k4b", in file names; has no underscore
  std::string full_name;    // "flux_2_klein_4b", in metadata
  int64_t text_length = 0;  // T, slots for text tokens
  int64_t text_width = 0;   // C, features of a text state

  bool operator==(const CacheModel&) const = default;
};

// The sizes of a transformer that decide about its caches.
struct CacheGeometry {
  int64_t hidden = 0, double_blocks = 0, single_blocks = 0, text_width = 0, text_length = 0;

  bool operator==(const CacheGeometry&) const = default;
};

// dev, klein-4b and klein-9b have the names that musubi-tuner gives them; a base model and its distilled sibling share theirs.
// Other sizes get a name from a hash of their geometry.
CacheModel cache_model(const CacheGeometry& geometry);

}  // namespace flux2
