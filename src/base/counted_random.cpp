#include "base/counted_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace flux2 {

namespace {

// Training draws millions of normals for each step of a small model. The functions below have no branches and call no library, so
// the compiler turns loops over them into vector instructions. This file is compiled without contraction of products and sums:
// every processor gets the same values.

// log(x) for a normal x > 0: x = m · 2^e with m between √½ and √2, log m = 2·atanh(s), s = (m − 1)/(m + 1). |s| < 0.172, so the
// first term left out is below 2⁻⁵⁵ of the sum.
inline double log_of(double x) {
  constexpr uint64_t kRootOfHalf = 0x3FE6A09E667F3BCDull, kBias = uint64_t{1023} << 52;
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t biased = (bits - kRootOfHalf + kBias) >> 52;  // e + 1023
  const double m = std::bit_cast<double>(bits - (biased << 52) + kBias);
  const double e = std::bit_cast<double>(0x4330000000000000ull | biased) - (0x1p52 + 1023);  // an integer to double by its bits
  const double s = (m - 1) / (m + 1), q = s * s;
  double sum = 0;
  for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * q;
  return e * std::numbers::ln2 + (2 * s + 2 * s * sum);
}

struct NormalPair {
  double first, second;
};

// Box–Muller: radius √(−2 log u), angle 2π·v, with u and v in (0, 1) from a word each. The angle is a whole number of quarter
// turns and a rest of at most an eighth, whose sine and cosine are Taylor series.
inline NormalPair box_muller(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(static_cast<int32_t>(a ^ 0x80000000u)) + 2147483648.5) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * log_of(u));
  const uint32_t quarters = (b + 0x20000000u) >> 30;
  const double x = (static_cast<double>(static_cast<int32_t>(b - (quarters << 30))) + 0.5) * (2 * std::numbers::pi * 0x1p-32);
  const double q = x * x;
  double sine = 1, cosine = 1;
  for (int k = 17; k >= 3; k -= 2) sine = 1 - sine * q * (1.0 / (k * (k - 1)));
  for (int k = 18; k >= 2; k -= 2) cosine = 1 - cosine * q * (1.0 / (k * (k - 1)));
  sine *= x;
  const bool swapped = quarters & 1;
  const double c = swapped ? sine : cosine, s = swapped ? cosine : sine;
  return {radius * ((quarters + 1) & 2 ? -c : c), radius * (quarters & 2 ? -s : s)};
}

constexpr size_t kTogether = 64;  // blocks of four words

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FLUX2_EVERY_X86 __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLUX2_EVERY_X86
#endif

// The 4 · kTogether normals of `kTogether` blocks from `first` on; each step is a loop over all blocks.
FLUX2_EVERY_X86 void normals_of_blocks(uint64_t seed, uint32_t purpose, uint64_t index, uint32_t first, float* out) {
  uint32_t c[4][kTogether];
  for (size_t i = 0; i < kTogether; ++i) {
    c[0][i] = first + static_cast<uint32_t>(i);
    c[1][i] = purpose;
    c[2][i] = static_cast<uint32_t>(index);
    c[3][i] = static_cast<uint32_t>(index >> 32);
  }
  PhiloxKey key(seed);
  for (int round = 0; round < kPhiloxRounds; ++round, key.next())
    for (size_t i = 0; i < kTogether; ++i) philox_round(key, c[0][i], c[1][i], c[2][i], c[3][i]);
  for (size_t pair = 0; pair < 4; pair += 2) {
    double n[2][kTogether];
    for (size_t i = 0; i < kTogether; ++i) {
      const NormalPair both = box_muller(c[pair][i], c[pair + 1][i]);
      n[0][i] = both.first;
      n[1][i] = both.second;
    }
    for (size_t i = 0; i < kTogether; ++i) {
      out[4 * i + pair] = static_cast<float>(n[0][i]);
      out[4 * i + pair + 1] = static_cast<float>(n[1][i]);
    }
  }
}

}  // namespace

std::array<uint32_t, 4> CountedRandom::words(uint32_t block) const {
  return philox(seed_, uint64_t{purpose_} << 32 | block, index_);
}

double CountedRandom::uniform(uint64_t element) const {
  return (words(static_cast<uint32_t>(element / 4))[element % 4] + 0.5) * 0x1p-32;
}

double CountedRandom::normal(uint64_t element) const {
  const auto w = words(static_cast<uint32_t>(element / 4));
  const size_t pair = element % 4 / 2 * 2;
  const NormalPair n = box_muller(w[pair], w[pair + 1]);
  return element % 2 == 0 ? n.first : n.second;
}

void CountedRandom::normals(std::span<float> out) const {
  constexpr size_t kValues = 4 * kTogether;
  for (size_t i = 0; i < out.size(); i += kValues) {
    const auto block = static_cast<uint32_t>(i / 4);
    if (i + kValues <= out.size()) {
      normals_of_blocks(seed_, purpose_, index_, block, out.data() + i);
    } else {
      float last[kValues];
      normals_of_blocks(seed_, purpose_, index_, block, last);
      std::copy_n(last, out.size() - i, out.data() + i);
    }
  }
}

}  // namespace flux2
