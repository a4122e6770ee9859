#include "base/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"

// Compiled with contraction of multiply-adds off: the arithmetic below rounds exactly where it says so.

namespace flux2 {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t block, uint64_t subsequence) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(subsequence), static_cast<uint32_t>(subsequence >> 32)};
  PhiloxKey here(key);
  for (int round = 0; round < kPhiloxRounds; ++round, here.next()) philox_round(here, c[0], c[1], c[2], c[3]);
  return c;
}

namespace {

// Single-precision log and sincos with the polynomials of PyTorch's AVX2 routine.
float polynomial_log(float v) {
  int exponent = 0;
  const float m = std::frexp(v, &exponent);
  auto e = static_cast<float>(exponent);
  float x;
  if (m < 0.707106781186547524f) {
    e -= 1.0f;
    x = (m - 1.0f) + m;
  } else {
    x = m - 1.0f;
  }
  const float z = x * x;
  float p = 7.0376836292e-2f;
  for (float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f,
                  -2.4999993993e-1f, 3.3333331174e-1f})
    p = std::fma(p, x, c);
  p = p * x;
  float y = std::fma(p, z, e * -2.12194440e-4f);
  y -= z * 0.5f;
  return std::fma(e, 0.693359375f, x + y);
}

struct SinCos {
  float sine, cosine;
};

SinCos polynomial_sincos(float angle) {
  int j = static_cast<int>(angle * 1.27323954473516f);
  j = (j + 1) & ~1;
  const auto y = static_cast<float>(j);
  float x = std::fma(y, -0.78515625f, angle);
  x = std::fma(y, -2.4187564849853515625e-4f, x);
  x = std::fma(y, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float c = std::fma(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = std::fma(c, z, 4.166664568298827e-2f);
  c = c * z;
  c = std::fma(c, z, -(z * 0.5f)) + 1.0f;
  float s = std::fma(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = std::fma(s, z, -1.6666654611e-1f);
  s = std::fma(s * z, x, x);
  SinCos r = (j & 2) ? SinCos{c, s} : SinCos{s, c};
  if (j & 4) r.sine = -r.sine;
  if (((j - 2) & 4) == 0) r.cosine = -r.cosine;
  return r;
}

// u[0..15] uniform in [0, 1) become normals in place.
void box_muller_16(float* u) {
  for (int j = 0; j < 8; ++j) {
    const float r = std::sqrt(-2.0f * polynomial_log(1.0f - u[j]));
    const auto [sine, cosine] = polynomial_sincos(6.2831855f * u[j + 8]);
    u[j] = r * cosine;
    u[j + 8] = r * sine;
  }
}

float round_bf16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  return std::bit_cast<float>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}

void box_muller_16_bf16(float* u) {
  for (int j = 0; j < 8; ++j) {
    const float u1 = round_bf16(1.0f - u[j]);
    const float r = round_bf16(std::sqrt(round_bf16(-2.0f * round_bf16(std::log(u1)))));
    const float angle = round_bf16(static_cast<float>(2.0 * M_PI * static_cast<double>(u[j + 8])));
    u[j] = round_bf16(r * round_bf16(std::cos(angle)));
    u[j + 8] = round_bf16(r * round_bf16(std::sin(angle)));
  }
}

// Fewer than 16 elements: one value at a time in double, the sine kept for the next.
void scalar_normals(std::mt19937& engine, std::span<float> out) {
  const auto uniform = [&] {
    const uint64_t high = engine(), low = engine();
    return static_cast<double>(((high << 32) | low) & ((1ull << 53) - 1)) * 0x1p-53;
  };
  for (size_t i = 0; i < out.size(); i += 2) {
    const double u1 = uniform(), u2 = uniform();
    const double r = std::sqrt(-2.0 * std::log1p(-u2)), angle = 2.0 * M_PI * u1;
    out[i] = static_cast<float>(r * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(r * std::sin(angle));
  }
}

template <class Uniform, class Transform>
void grouped_normals(std::mt19937& engine, std::span<float> out, Uniform uniform, Transform transform) {
  for (float& v : out) v = uniform(engine());
  // The groups are independent and drawn in parallel; otherwise a GPU would have to wait for the noise of a large image.
  const auto groups = static_cast<int64_t>(out.size() / 16);
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) transform(&out[static_cast<size_t>(16 * g)]);
  };
  constexpr int64_t kGrain = 4096;
  if (groups >= 2 * kGrain) ThreadPool(0).parallel_ranges(groups, kGrain, range);
  else range(0, groups);
  if (out.size() % 16 != 0) {  // the last 16 are drawn again, overlapping the group before
    float* last = out.data() + out.size() - 16;
    for (int j = 0; j < 16; ++j) last[j] = uniform(engine());
    transform(last);
  }
}

}  // namespace

void torch_cpu_normal(uint64_t seed, std::span<float> out) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  if (out.size() < 16) return scalar_normals(engine, out);
  grouped_normals(
      engine, out, [](uint32_t w) { return static_cast<float>(w & 0xFFFFFFu) * 0x1p-24f; }, box_muller_16);
}

void torch_cpu_normal_bf16(uint64_t seed, std::span<float> out) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  if (out.size() < 16) {
    scalar_normals(engine, out);
    for (float& v : out) v = round_bf16(v);
    return;
  }
  grouped_normals(
      engine, out, [](uint32_t w) { return static_cast<float>(w & 0xFFu) * 0x1p-8f; }, box_muller_16_bf16);
}

void torch_cuda_normal(uint64_t seed, const CudaGeometry& gpu, std::span<float> out) {
  constexpr int64_t kBlock = 256;
  const auto numel = static_cast<int64_t>(out.size());
  const int64_t resident = static_cast<int64_t>(gpu.multiprocessors) * (gpu.threads_per_multiprocessor / kBlock);
  const int64_t threads = kBlock * std::min(resident, (numel + kBlock - 1) / kBlock);
  const float turn = 2.3283064e-10f * 6.2831855f;
  for (int64_t base = 0; base < numel; base += 4 * threads) {
    const auto iteration = static_cast<uint64_t>(base / (4 * threads));
    for (int64_t thread = 0; thread < threads; ++thread) {
      if (base + thread >= numel) break;
      const auto words = philox(seed, iteration, static_cast<uint64_t>(thread));
      for (int pair = 0; pair < 2; ++pair) {
        const size_t at = static_cast<size_t>(2 * pair);
        const float u = std::fma(static_cast<float>(words[at]), 2.3283064e-10f, 1.1641532e-10f);
        const float angle = std::fma(static_cast<float>(words[at + 1]), turn, turn / 2.0f);
        const float r = std::sqrt(-2.0f * std::log(u));
        const int64_t e = base + thread + 2 * pair * threads;
        if (e < numel) out[static_cast<size_t>(e)] = r * std::sin(angle);
        if (e + threads < numel) out[static_cast<size_t>(e + threads)] = r * std::cos(angle);
      }
    }
  }
}

}  // namespace flux2
