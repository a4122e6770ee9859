#pragma once

#include <cstdint>
#include <span>

#include "text/unicode.h"

// The Unicode data behind unicode.h, written by scripts/make_unicode_tables.py. Tables are sorted by their first field.
namespace flux2::unicode_tables {

struct ClassRange {  // code points that are not CharClass::Other
  uint32_t first, last;
  CharClass kind;
};

struct CasingRange {  // code points whose casing is not Casing::None
  uint32_t first, last;
  Casing casing;
};

struct CombiningRange {  // code points whose canonical combining class is not 0
  uint32_t first, last;
  uint8_t combining;
};

struct Decomposition {  // one canonical step, code → first second; second is 0 for a single replacement
  uint32_t code, first, second;
};

extern const std::span<const ClassRange> kClasses;
extern const std::span<const CasingRange> kCasings;
extern const std::span<const CombiningRange> kCombining;
extern const std::span<const Decomposition> kDecompositions;
extern const std::span<const uint16_t> kComposing;  // the kDecompositions that NFC undoes, sorted by (first, second)

}  // namespace flux2::unicode_tables
