// Sixteen floats in two AVX registers. Included inside the namespace of the one file compiled for this set.

constexpr int kLanes = 16;

struct Vec {
  __m256 v[2];
};

inline Vec splat(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
inline Vec load(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
inline void store(float* p, const Vec& x) {
  _mm256_storeu_ps(p, x.v[0]);
  _mm256_storeu_ps(p + 8, x.v[1]);
}

inline Vec operator+(const Vec& a, const Vec& b) { return {{_mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1])}}; }
inline Vec operator-(const Vec& a, const Vec& b) { return {{_mm256_sub_ps(a.v[0], b.v[0]), _mm256_sub_ps(a.v[1], b.v[1])}}; }
inline Vec operator*(const Vec& a, const Vec& b) { return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}}; }
inline Vec operator/(const Vec& a, const Vec& b) { return {{_mm256_div_ps(a.v[0], b.v[0]), _mm256_div_ps(a.v[1], b.v[1])}}; }
inline Vec max(const Vec& a, const Vec& b) { return {{_mm256_max_ps(a.v[0], b.v[0]), _mm256_max_ps(a.v[1], b.v[1])}}; }

// a · b + c with one rounding.
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}

// Within [low, high]; NaN stays NaN, since these instructions return their second operand for it.
inline Vec clamp(const Vec& x, float low, float high) {
  const __m256 lowest = _mm256_set1_ps(low), highest = _mm256_set1_ps(high);
  return {{_mm256_min_ps(highest, _mm256_max_ps(lowest, x.v[0])), _mm256_min_ps(highest, _mm256_max_ps(lowest, x.v[1]))}};
}

inline Vec round(const Vec& x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {{_mm256_round_ps(x.v[0], kNearest), _mm256_round_ps(x.v[1], kNearest)}};
}

// x · 2^n for whole n in [-252, 254], in two steps because 2^n itself may be no float.
inline __m256 times_power_of_two(__m256 x, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(whole, 1);
  const __m256i second = _mm256_sub_epi32(whole, first);
  const __m256i bias = _mm256_set1_epi32(127);
  x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
}
inline Vec times_power_of_two(const Vec& x, const Vec& n) {
  return {{times_power_of_two(x.v[0], n.v[0]), times_power_of_two(x.v[1], n.v[1])}};
}

struct Pairs {
  Vec even, odd;
};
inline Pairs load_pairs(const float* p) {
  Pairs pairs;
  for (int i = 0; i < 2; ++i) {
    const __m256 a = _mm256_loadu_ps(p + 16 * i), b = _mm256_loadu_ps(p + 16 * i + 8);
    const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    pairs.even.v[i] = _mm256_shuffle_ps(low, high, 0x88);
    pairs.odd.v[i] = _mm256_shuffle_ps(low, high, 0xdd);
  }
  return pairs;
}
inline void store_pairs(float* p, const Pairs& pairs) {
  for (int i = 0; i < 2; ++i) {
    const __m256 low = _mm256_unpacklo_ps(pairs.even.v[i], pairs.odd.v[i]);
    const __m256 high = _mm256_unpackhi_ps(pairs.even.v[i], pairs.odd.v[i]);
    _mm256_storeu_ps(p + 16 * i, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 16 * i + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
}
