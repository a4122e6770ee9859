#pragma once

#include <cstdint>
#include <vector>

#include "base/counted_random.h"

namespace flux2 {

// A row of random numbers that depends on the seed and the index only.
class SceneRandom {
 public:
  SceneRandom(uint64_t seed, uint64_t index) : random_(seed, 50, index) {}

  double share() { return random_.uniform(next_++); }
  bool chance(double probability) { return share() < probability; }
  int below(int count) { return static_cast<int>(share() * count); }
  float between(double low, double high) { return static_cast<float>(low + (high - low) * share()); }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  CountedRandom random_;
  uint64_t next_ = 0;
};

}  // namespace flux2
