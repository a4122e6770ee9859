#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>

namespace flux2 {

// Philox4x32-10: a block of four random words for a key and a counter, without state.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t block, uint64_t subsequence);

// Its rounds, for callers that compute many blocks at a time.
constexpr int kPhiloxRounds = 10;
struct PhiloxKey {
  explicit PhiloxKey(uint64_t key) : low(static_cast<uint32_t>(key)), high(static_cast<uint32_t>(key >> 32)) {}
  void next() { low += 0x9E3779B9u, high += 0xBB67AE85u; }
  uint32_t low, high;
};
inline void philox_round(const PhiloxKey& key, uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3) {
  const uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key.low;
  c1 = static_cast<uint32_t>(p1);
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key.high;
  c3 = static_cast<uint32_t>(p0);
}

// The result of torch.randn on the CPU in float32 for `out.size()` elements after manual_seed(seed). It is bit-identical to
// PyTorch's x86 builds (other builds differ in the last bit of some values).
void torch_cpu_normal(uint64_t seed, std::span<float> out);

// The same call for a bfloat16 tensor: up to PyTorch 2.11 every step is rounded to bf16 and only 8 random bits
// are used, so the values are unrelated to the float32 ones.
void torch_cpu_normal_bf16(uint64_t seed, std::span<float> out);

// The properties of a GPU that affect its random numbers: how many threads fill a tensor at once.
struct CudaGeometry {
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
};

// The result of torch.randn on that GPU in float32. sin and cos are exact here and approximate there, so values agree to about
// 2e-6.
void torch_cuda_normal(uint64_t seed, const CudaGeometry& gpu, std::span<float> out);

}  // namespace flux2
