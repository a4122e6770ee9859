#pragma once

#include <array>
#include <cstdint>

namespace flux2 {

// Types with 256 elements per block divide a block into groups. Each group has a small integer as its scale (and one as its
// minimum), which multiplies one or two half floats of the block. The searches below look for integers and half floats with a
// small sum of squared errors: first each group is fitted separately, then the half floats follow from the largest fit, and then
// integers and half floats are improved alternately.
constexpr int kBlock = 256;
constexpr int kMaxGroups = 16;

// x ≈ d · scale · q − dmin · min for q in 0 … levels; scale and min in 0 … codes.
struct AffineType {
  int group;   // elements
  int levels;  // largest q
  int codes;   // largest scale and min
};
inline constexpr AffineType kQ2K{16, 3, 15}, kQ4K{32, 15, 63}, kQ5K{32, 31, 63};

struct AffineBlock {
  float d = 0, dmin = 0;  // values of half floats
  std::array<uint8_t, kMaxGroups> scale{}, min{};
  std::array<uint8_t, kBlock> q{};
};

AffineBlock search_affine(const AffineType& type, const float* x);

// x ≈ d · scale · level(q) where the levels are −lowest … highest, or the table of IQ4_NL; scale in first … last.
struct SymmetricType {
  int group;
  int lowest, highest;  // levels; both 0 stands for the table
  int first, last;      // scales

  bool has_table() const { return highest == 0; }
};
inline constexpr SymmetricType kQ3K{16, -4, 3, -32, 31}, kQ6K{16, -32, 31, -128, 127}, kIQ4XS{32, 0, 0, -32, 31};

struct SymmetricBlock {
  float d = 0;  // value of a half float
  std::array<int8_t, kMaxGroups> scale{};
  std::array<int8_t, kBlock> q{};  // levels, or indices into the table
};

SymmetricBlock search_symmetric(const SymmetricType& type, const float* x);

// One scale for 32 elements over the table of IQ4_NL: the value of a half float.
float search_nonlinear_scale(const float* x);

// The index of the entry of kNonlinearCodes nearest to v.
int nearest_nonlinear(float v);

}  // namespace flux2
