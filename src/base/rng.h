#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>

namespace flux2 {

// Philox4x32-10: a block of four random words for a key and a counter, without state.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t block, uint64_t subsequence);

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
