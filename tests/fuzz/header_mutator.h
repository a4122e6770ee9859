#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// Mutators that know the structure of a header: libFuzzer's own changes nearly always break the frame (a length, a brace), so the
// checks of shapes, offsets and counts behind it are seldom reached.
namespace flux2_fuzz {

// A number that is likely to be a border: 0, 1, a power of two or its neighbour, the old value plus or minus something.
inline uint64_t odd_number(uint64_t old, std::mt19937& random) {
  switch (random() % 8) {
    case 0: return 0;
    case 1: return 1;
    case 2: return old + 1;
    case 3: return old - 1;
    case 4: return old * 2;
    case 5: return uint64_t{1} << (random() % 64);
    case 6: return (uint64_t{1} << (random() % 64)) - 1;
    default: return random();
  }
}

// Changes one thing in a safetensors file: an extent, an offset, a type, a name, a tensor more or less. Returns the new size, or
// 0 when the bytes have no such structure or the result does not fit.
size_t mutate_safetensors(uint8_t* data, size_t size, size_t max_size, unsigned seed);

// The same for a GGUF file: counts, lengths, types, extents and offsets, in place.
size_t mutate_gguf(uint8_t* data, size_t size, unsigned seed);

}  // namespace flux2_fuzz

// Lets the fuzzer try `mutated`, one of the calls above, for half of its changes: FUZZ_MUTATOR(mutate_gguf(data, size, seed))
#ifdef FLUX2_FUZZ_REPLAY
#define FUZZ_MUTATOR(mutated)
#else
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
#define FUZZ_MUTATOR(mutated)                                                                             \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) { \
    if (seed % 2 == 0)                                                                                    \
      if (const size_t changed = flux2_fuzz::mutated) return changed;                                     \
    return LLVMFuzzerMutate(data, size, max_size);                                                        \
  }
#endif
