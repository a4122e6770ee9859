#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

// A fuzz target is one function over bytes:
//   FUZZ_TARGET(toml) { … data, size … }
// With clang's fuzzer it is the entry point of a program of its own. In the replay program (replay_test.cpp) all targets are
// collected under their names. A target either returns or throws flux2::Error; everything else is a finding.
namespace flux2_fuzz {

using Target = void (*)(const uint8_t* data, size_t size);

inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

inline std::string_view text_of(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// A promise of the parser does not hold. libFuzzer keeps the input of an abort, but not of a trap.
// clang 14 has no std::source_location.
[[noreturn]] inline void broken(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  std::fprintf(stderr, "%s:%d: the input breaks a promise\n", file, line);
  std::abort();
}

}  // namespace flux2_fuzz

#ifdef FLUX2_FUZZ_REPLAY
#define FUZZ_TARGET(name)                                                                            \
  static void fuzz_##name(const uint8_t* data, size_t size);                                         \
  static const bool fuzz_##name##_listed = flux2_fuzz::targets().emplace(#name, fuzz_##name).second; \
  static void fuzz_##name([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)
#else
#define FUZZ_TARGET(name)                                                   \
  static void fuzz_##name(const uint8_t* data, size_t size);                \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    try {                                                                   \
      fuzz_##name(data, size);                                              \
    } catch (const flux2::Error&) { /* refused, as it may be */             \
    }                                                                       \
    return 0;                                                               \
  }                                                                         \
  static void fuzz_##name([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)
#endif
