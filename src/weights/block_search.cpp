#include "weights/block_search.h"

#include <algorithm>
#include <cmath>

#include "tensor/blocks.h"

namespace flux2 {

namespace {

constexpr int kRounds = 3;  // of improving integers and half floats in turn; a fourth gains less than 0.1 %

// Where the nearer of two neighbours in the table changes.
constexpr auto kHalfway = [] {
  std::array<float, 15> halves{};
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = 0.5f * static_cast<float>(kNonlinearCodes[i] + kNonlinearCodes[i + 1]);
  return halves;
}();

float as_half(float v) { return to_float(to_f16(v)); }

// Nearest, ties to even, for magnitudes below 2²²: the sum's last bits are the integer. lrintf would not become vector code.
float nearest(float v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

float clamp_level(float v, float low, float high) { return std::min(std::max(v, low), high); }

// Sums run in lanes side by side, so that loops over them become vector code; groups are a multiple of them.
constexpr int kLanes = 8;
using Lanes = std::array<float, kLanes>;

float total(const Lanes& sums) {
  float sum = 0;
  for (float s : sums) sum += s;
  return sum;
}

// ---- scale and minimum ----

struct Affine {
  float scale = 0, min = 0;
};

float affine_level(float x, float inverse, float min, float levels) {
  return clamp_level(nearest((x + min) * inverse), 0, levels);
}

float affine_error(const float* x, int n, float levels, Affine a) {
  const float inverse = a.scale > 0 ? 1.0f / a.scale : 0.0f;
  Lanes error{};
  for (int i = 0; i < n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const float v = x[i + l], e = a.scale * affine_level(v, inverse, a.min, levels) - a.min - v;
      error[static_cast<size_t>(l)] += e * e;
    }
  return total(error);
}

// The scale and minimum that fit the levels which `start` rounds to, in the least squares.
Affine refit(const float* x, int n, float levels, Affine start) {
  const float inverse = start.scale > 0 ? 1.0f / start.scale : 0.0f;
  Lanes lane_q{}, lane_qq{}, lane_x{}, lane_qx{};
  for (int i = 0; i < n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const auto at = static_cast<size_t>(l);
      const float v = x[i + l], q = affine_level(v, inverse, start.min, levels);
      lane_q[at] += q;
      lane_qq[at] += q * q;
      lane_x[at] += v;
      lane_qx[at] += q * v;
    }
  const float sum_q = total(lane_q), sum_qq = total(lane_qq), sum_x = total(lane_x), sum_qx = total(lane_qx);
  const auto count = static_cast<float>(n);
  const float determinant = count * sum_qq - sum_q * sum_q;
  Affine fit = start;
  if (determinant > 0) fit = {(count * sum_qx - sum_q * sum_x) / determinant, (sum_q * sum_qx - sum_qq * sum_x) / determinant};
  if (fit.min < 0 || determinant <= 0) fit = {sum_qq > 0 ? sum_qx / sum_qq : 0.0f, 0.0f};  // the format has no positive offset
  return fit.scale > 0 ? fit : Affine{};
}

Affine fit_affine(const float* x, int n, float levels) {
  const auto [low, high] = std::minmax_element(x, x + n);
  const float min = std::max(0.0f, -*low), range = std::max(*high, -min) + min;
  if (range <= 0) return {0.0f, min};
  Affine best{range / levels, min};
  float least = affine_error(x, n, levels, best);
  for (int step = -10; step <= 10; ++step) {
    // Fewer or more steps over the range: the ends are cut, or what lies between them gets finer.
    const Affine fit =
        refit(x, n, levels, {range / (levels + 0.1f * static_cast<float>(step) * std::min(levels / 5.0f, 2.0f)), min});
    if (const float error = affine_error(x, n, levels, fit); error < least) least = error, best = fit;
  }
  return best;
}

int code_of(float v, float unit, int codes) {
  return unit > 0 ? static_cast<int>(clamp_level(nearest(v / unit), 0, static_cast<float>(codes))) : 0;
}

// The best pair of codes around those given.
void improve_codes(const AffineType& type, const float* x, float d, float dmin, int reach, uint8_t& scale, uint8_t& min) {
  float least = INFINITY;
  const int s0 = scale, m0 = min;
  for (int s = std::max(0, s0 - reach); s <= std::min(type.codes, s0 + reach); ++s)
    for (int m = std::max(0, m0 - reach); m <= std::min(type.codes, m0 + reach); ++m) {
      const float error =
          affine_error(x, type.group, static_cast<float>(type.levels), {d * static_cast<float>(s), dmin * static_cast<float>(m)});
      if (error < least) least = error, scale = static_cast<uint8_t>(s), min = static_cast<uint8_t>(m);
    }
}

// The half floats that fit the codes and levels in the least squares.
void refit_block(const AffineType& type, const float* x, AffineBlock& b) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // of a = scale · q and b = −min
  for (int i = 0; i < kBlock; ++i) {
    const auto g = static_cast<size_t>(i / type.group);
    const float scale = b.d * b.scale[g], low = b.dmin * b.min[g];
    const double q = affine_level(x[i], scale > 0 ? 1.0f / scale : 0.0f, low, static_cast<float>(type.levels));
    const double u = b.scale[g] * q, v = -static_cast<double>(b.min[g]);
    aa += u * u, ab += u * v, bb += v * v, ax += u * x[i], bx += v * x[i];
  }
  const double determinant = aa * bb - ab * ab;
  if (bb == 0 && aa > 0) {
    b.d = as_half(static_cast<float>(ax / aa));
  } else if (determinant > 1e-12 * aa * bb) {
    const double d = (ax * bb - bx * ab) / determinant, dmin = (bx * aa - ax * ab) / determinant;
    if (d > 0 && dmin >= 0) b.d = as_half(static_cast<float>(d)), b.dmin = as_half(static_cast<float>(dmin));
  }
}

float block_error(const AffineType& type, const float* x, const AffineBlock& b) {
  float error = 0;
  for (int g = 0; g < kBlock / type.group; ++g)
    error += affine_error(x + g * type.group, type.group, static_cast<float>(type.levels),
                          {b.d * b.scale[static_cast<size_t>(g)], b.dmin * b.min[static_cast<size_t>(g)]});
  return error;
}

// Codes for given half floats, then both improved in turn.
AffineBlock settle(const AffineType& type, const float* x, const std::array<Affine, kMaxGroups>& fits, float d, float dmin) {
  const int groups = kBlock / type.group;
  AffineBlock b, best;
  b.d = as_half(d), b.dmin = as_half(dmin);
  for (int g = 0; g < groups; ++g) {
    const auto at = static_cast<size_t>(g);
    b.scale[at] = static_cast<uint8_t>(code_of(fits[at].scale, b.d, type.codes));
    b.min[at] = static_cast<uint8_t>(code_of(fits[at].min, b.dmin, type.codes));
  }
  float least = INFINITY;
  for (int round = 0; round < kRounds; ++round) {
    for (int g = 0; g < groups; ++g)
      improve_codes(type, x + g * type.group, b.d, b.dmin, round == 0 ? 2 : 1, b.scale[static_cast<size_t>(g)],
                    b.min[static_cast<size_t>(g)]);
    if (const float error = block_error(type, x, b); error < least) least = error, best = b;
    else break;
    refit_block(type, x, b);
  }
  return best;
}

// ---- scale alone ----

// The value of the table's nearest entry: −127 and the steps to all entries that v is past the middle to.
float table_level(float v) {
  float level = kNonlinearCodes[0];
  for (size_t i = 0; i + 1 < kNonlinearCodes.size(); ++i)
    level += v > kHalfway[i] ? static_cast<float>(kNonlinearCodes[i + 1] - kNonlinearCodes[i]) : 0.0f;
  return level;
}

struct UniformLevels {
  float low, high;
  float operator()(float v) const { return clamp_level(nearest(v), low, high); }
};
struct TableLevels {
  float operator()(float v) const { return table_level(v); }
};

struct Products {
  float lx = 0, ll = 0, error = 0;  // of levels with x, of levels with themselves; squared error
};

template <class Levels>
Products sum_products(const Levels& level_of, const float* x, int n, float scale) {
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  Lanes lx{}, ll{}, error{};
  for (int i = 0; i < n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const auto at = static_cast<size_t>(l);
      const float v = x[i + l], level = level_of(v * inverse), e = scale * level - v;
      lx[at] += level * v;
      ll[at] += level * level;
      error[at] += e * e;
    }
  return {total(lx), total(ll), total(error)};
}

Products products(const SymmetricType& type, const float* x, int n, float scale) {
  if (type.has_table()) return sum_products(TableLevels{}, x, n, scale);
  return sum_products(UniformLevels{static_cast<float>(type.lowest), static_cast<float>(type.highest)}, x, n, scale);
}

// The largest value takes the lowest or the highest level, or one that cuts it off or leaves room.
float fit_symmetric(const SymmetricType& type, const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  if (largest == 0) return 0;
  const float ends[] = {type.has_table() ? -127.0f : static_cast<float>(type.lowest),
                        type.has_table() ? 113.0f : static_cast<float>(type.highest)};
  float best = largest / ends[0], least = products(type, x, n, best).error;
  for (float end : ends)
    for (int step = -9; step <= 9; ++step) {
      const float divisor = end * (1.0f + (type.highest == 3 ? 0.04f : 0.015f) * static_cast<float>(step));
      const Products p = products(type, x, n, largest / divisor);
      if (p.ll == 0) continue;
      const float scale = p.lx / p.ll;
      if (const float error = products(type, x, n, scale).error; error < least) least = error, best = scale;
    }
  return best;
}

SymmetricBlock settle(const SymmetricType& type, const float* x, const std::array<float, kMaxGroups>& fits, float d) {
  const int groups = kBlock / type.group;
  SymmetricBlock b, best;
  b.d = as_half(d);
  const auto first = static_cast<float>(type.first), last = static_cast<float>(type.last);
  for (size_t g = 0; g < static_cast<size_t>(groups); ++g)
    b.scale[g] = static_cast<int8_t>(b.d != 0 ? clamp_level(nearest(fits[g] / b.d), first, last) : 0.0f);
  float least = INFINITY;
  for (int round = 0; round < kRounds; ++round) {
    float error = 0;
    double lx = 0, ll = 0;
    for (int g = 0; g < groups; ++g) {
      int8_t& scale = b.scale[static_cast<size_t>(g)];
      const int middle = scale, reach = round == 0 ? 2 : 1;
      Products best_here{.error = INFINITY};
      for (int s = std::max(type.first, middle - reach); s <= std::min(type.last, middle + reach); ++s) {
        const Products p = products(type, x + g * type.group, type.group, b.d * static_cast<float>(s));
        if (p.error < best_here.error) best_here = p, scale = static_cast<int8_t>(s);
      }
      error += best_here.error;
      lx += static_cast<double>(scale) * best_here.lx;
      ll += static_cast<double>(scale) * scale * best_here.ll;
    }
    if (error >= least) break;
    least = error, best = b;
    if (ll > 0) b.d = as_half(static_cast<float>(lx / ll));
  }
  return best;
}

float block_error(const SymmetricType& type, const float* x, const SymmetricBlock& b) {
  float error = 0;
  for (int g = 0; g < kBlock / type.group; ++g)
    error += products(type, x + g * type.group, type.group, b.d * static_cast<float>(b.scale[static_cast<size_t>(g)])).error;
  return error;
}

}  // namespace

int nearest_nonlinear(float v) {
  return static_cast<int>(std::count_if(kHalfway.begin(), kHalfway.end(), [v](float half) { return v > half; }));
}

AffineBlock search_affine(const AffineType& type, const float* x) {
  const int groups = kBlock / type.group;
  std::array<Affine, kMaxGroups> fits{};
  float scale = 0, min = 0;
  for (int g = 0; g < groups; ++g) {
    const auto at = static_cast<size_t>(g);
    fits[at] = fit_affine(x + g * type.group, type.group, static_cast<float>(type.levels));
    scale = std::max(scale, fits[at].scale);
    min = std::max(min, fits[at].min);
  }
  // With few codes it matters where the largest falls; other units are worth a try.
  const auto codes = static_cast<float>(type.codes);
  AffineBlock best;
  float least = INFINITY;
  const int tries = type.codes < 32 ? 3 : 1;
  for (int i = 0; i < tries; ++i)
    for (int j = 0; j < tries; ++j) {
      const AffineBlock b =
          settle(type, x, fits, scale / (codes - static_cast<float>(2 * i)), min / (codes - static_cast<float>(2 * j)));
      if (const float error = block_error(type, x, b); error < least) least = error, best = b;
    }
  for (int i = 0; i < kBlock; ++i) {
    const auto g = static_cast<size_t>(i / type.group);
    const float s = best.d * best.scale[g];
    best.q[static_cast<size_t>(i)] = static_cast<uint8_t>(
        affine_level(x[i], s > 0 ? 1.0f / s : 0.0f, best.dmin * best.min[g], static_cast<float>(type.levels)));
  }
  return best;
}

SymmetricBlock search_symmetric(const SymmetricType& type, const float* x) {
  const int groups = kBlock / type.group;
  std::array<float, kMaxGroups> fits{};
  float largest = 0;
  for (int g = 0; g < groups; ++g) {
    float& fit = fits[static_cast<size_t>(g)] = fit_symmetric(type, x + g * type.group, type.group);
    if (std::abs(fit) > std::abs(largest)) largest = fit;
  }
  SymmetricBlock best;
  float least = INFINITY;
  for (const float end : {static_cast<float>(type.first), static_cast<float>(type.last)}) {
    const SymmetricBlock b = settle(type, x, fits, largest / end);
    if (const float error = block_error(type, x, b); error < least) least = error, best = b;
  }
  for (int i = 0; i < kBlock; ++i) {
    const float s = best.d * static_cast<float>(best.scale[static_cast<size_t>(i / type.group)]);
    const float v = s != 0 ? x[i] / s : 0.0f;
    const float level = clamp_level(nearest(v), static_cast<float>(type.lowest), static_cast<float>(type.highest));
    best.q[static_cast<size_t>(i)] = static_cast<int8_t>(type.has_table() ? static_cast<float>(nearest_nonlinear(v)) : level);
  }
  return best;
}

float search_nonlinear_scale(const float* x) { return as_half(fit_symmetric(kIQ4XS, x, 32)); }

}  // namespace flux2
