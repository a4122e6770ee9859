#include "base/counted_random.h"

#include <cmath>
#include <numbers>

namespace flux2 {

namespace {

double unit(uint32_t word) { return (word + 0.5) * 0x1p-32; }

struct NormalPair {
  double first, second;
};

NormalPair box_muller(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log(unit(a))), angle = 2.0 * std::numbers::pi * unit(b);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

std::array<uint32_t, 4> CountedRandom::words(uint32_t block) const {
  return philox(seed_, uint64_t{purpose_} << 32 | block, index_);
}

double CountedRandom::uniform(uint64_t element) const { return unit(words(static_cast<uint32_t>(element / 4))[element % 4]); }

double CountedRandom::normal(uint64_t element) const {
  const auto w = words(static_cast<uint32_t>(element / 4));
  const size_t pair = element % 4 / 2 * 2;
  const NormalPair n = box_muller(w[pair], w[pair + 1]);
  return element % 2 == 0 ? n.first : n.second;
}

void CountedRandom::normals(std::span<float> out) const {
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto w = words(static_cast<uint32_t>(i / 4));
    const NormalPair a = box_muller(w[0], w[1]), b = box_muller(w[2], w[3]);
    const double four[] = {a.first, a.second, b.first, b.second};
    for (size_t k = 0; k < 4 && i + k < out.size(); ++k) out[i + k] = static_cast<float>(four[k]);
  }
}

}  // namespace flux2
