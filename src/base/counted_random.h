#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/rng.h"

namespace flux2 {

// Random numbers without state: a number is a function of a seed, a purpose, an index (of a sample, an epoch, …) and its own
// place. Results therefore do not depend on the order of calls, on the number of threads or ranks, or on whether a run was
// resumed. Philox4x32-10 with the counter (block, purpose, index); block b holds the elements 4b … 4b + 3.
class CountedRandom {
 public:
  CountedRandom(uint64_t seed, uint32_t purpose, uint64_t index) : seed_(seed), purpose_(purpose), index_(index) {}

  double uniform(uint64_t element) const;  // in (0, 1): (x + ½) · 2⁻³²
  double normal(uint64_t element) const;   // Box–Muller on two uniforms of the block, cosine first
  void normals(std::span<float> out) const;
  std::array<uint32_t, 4> words(uint32_t block) const;

  // Fisher–Yates from the end; position i draws the uniform first + i.
  template <class T>
  void shuffle(std::span<T> values, uint64_t first = 0) const {
    for (size_t i = values.size(); i-- > 1;)
      std::swap(values[i], values[static_cast<size_t>(uniform(first + i) * static_cast<double>(i + 1))]);
  }

 private:
  uint64_t seed_;
  uint32_t purpose_;
  uint64_t index_;
};

}  // namespace flux2
