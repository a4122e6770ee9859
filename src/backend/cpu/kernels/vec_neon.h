// Sixteen floats in four NEON registers. Included inside the namespace of the one file compiled for this set.

constexpr int kLanes = 16;

struct Vec {
  float32x4_t v[4];
};

template <class F, class... V>
inline Vec lanewise(const F& f, const V&... x) {
  return {{f(x.v[0]...), f(x.v[1]...), f(x.v[2]...), f(x.v[3]...)}};
}

inline Vec splat(float x) { return {{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}}; }
inline Vec load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
inline void store(float* p, const Vec& x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}

// The sum of all lanes in the order of add_halves(), without going through memory.
inline float sum_of_lanes(const Vec& x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

inline Vec operator+(const Vec& a, const Vec& b) {
  return lanewise([](auto x, auto y) { return vaddq_f32(x, y); }, a, b);
}
inline Vec operator-(const Vec& a, const Vec& b) {
  return lanewise([](auto x, auto y) { return vsubq_f32(x, y); }, a, b);
}
inline Vec operator*(const Vec& a, const Vec& b) {
  return lanewise([](auto x, auto y) { return vmulq_f32(x, y); }, a, b);
}
inline Vec operator/(const Vec& a, const Vec& b) {
  return lanewise([](auto x, auto y) { return vdivq_f32(x, y); }, a, b);
}
inline Vec max(const Vec& a, const Vec& b) {
  return lanewise([](auto x, auto y) { return vmaxq_f32(x, y); }, a, b);
}

// a · b + c with one rounding.
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return lanewise([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}

// Within [low, high]; NaN stays NaN.
inline Vec clamp(const Vec& x, float low, float high) {
  return lanewise([=](auto v) { return vminq_f32(vmaxq_f32(v, vdupq_n_f32(low)), vdupq_n_f32(high)); }, x);
}

inline Vec round(const Vec& x) {
  return lanewise([](auto v) { return vrndnq_f32(v); }, x);
}

// x · 2^n for whole n in [-252, 254], in two steps because 2^n itself may be no float.
inline Vec times_power_of_two(const Vec& x, const Vec& n) {
  return lanewise(
      [](auto v, auto e) {
        const int32x4_t whole = vcvtq_s32_f32(e), first = vshrq_n_s32(whole, 1), second = vsubq_s32(whole, first);
        const int32x4_t bias = vdupq_n_s32(127);
        v = vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(first, bias), 23)));
        return vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(second, bias), 23)));
      },
      x, n);
}

struct Pairs {
  Vec even, odd;
};
inline Pairs load_pairs(const float* p) {
  Pairs pairs;
  for (int i = 0; i < 4; ++i) {
    const float32x4x2_t both = vld2q_f32(p + 8 * i);
    pairs.even.v[i] = both.val[0];
    pairs.odd.v[i] = both.val[1];
  }
  return pairs;
}
inline void store_pairs(float* p, const Pairs& pairs) {
  for (int i = 0; i < 4; ++i) {
    const float32x4x2_t both = {{pairs.even.v[i], pairs.odd.v[i]}};
    vst2q_f32(p + 8 * i, both);  // a macro in clang, which commas in braces would split
  }
}
