#pragma once

#include <cstdint>
#include <string_view>

namespace flux2 {

// A published file: where it lies, and what its hash alone tells about it.
struct KnownFile {
  const char* sha256;
  const char* repository;
  const char* path;
  uint64_t bytes;
  const char* variant;  // of a transformer: its published id; else empty
  bool gated;           // files come after accepting the FLUX non-commercial licence; others are Apache-2.0

  const char* licence() const { return gated ? "FLUX non-commercial licence" : "Apache-2.0"; }
};

const KnownFile* known_file(std::string_view sha256);  // null when nobody published it

}  // namespace flux2
