// Sixteen floats in one AVX-512 register. Included inside the namespace of the one file compiled for this set.

constexpr int kLanes = 16;

struct Vec {
  __m512 v;
};

inline Vec splat(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, const Vec& x) { _mm512_storeu_ps(p, x.v); }

inline Vec operator+(const Vec& a, const Vec& b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(const Vec& a, const Vec& b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(const Vec& a, const Vec& b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(const Vec& a, const Vec& b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec max(const Vec& a, const Vec& b) { return {_mm512_max_ps(a.v, b.v)}; }

// a · b + c with one rounding.
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

// Within [low, high]; NaN stays NaN, since these instructions return their second operand for it.
inline Vec clamp(const Vec& x, float low, float high) {
  return {_mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x.v))};
}

inline Vec round(const Vec& x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

// x · 2^n for whole n; the instruction itself handles results that are subnormal or infinite.
inline Vec times_power_of_two(const Vec& x, const Vec& n) { return {_mm512_scalef_ps(x.v, n.v)}; }

struct Pairs {
  Vec even, odd;
};
inline Pairs load_pairs(const float* p) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
  return {{_mm512_permutex2var_ps(a, even, b)}, {_mm512_permutex2var_ps(a, odd, b)}};
}
inline void store_pairs(float* p, const Pairs& pairs) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(pairs.even.v, low, pairs.odd.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(pairs.even.v, high, pairs.odd.v));
}
