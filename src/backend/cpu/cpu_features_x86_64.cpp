#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "backend/cpu/cpu_features.h"

namespace flux2 {

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// Which register states the operating system saves when it switches threads.
uint64_t saved_states() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool has(unsigned bits, int position) { return ((bits >> position) & 1u) != 0; }

// "GenuineIntel" in the order of the registers.
bool made_by_intel() {
  const Registers zero = cpuid(0, 0);
  return zero.b == 0x756e6547 && zero.d == 0x49656e69 && zero.c == 0x6c65746e;
}

// Linux hands out tile registers only to processes that ask for them.
bool tiles_granted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuFeatures CpuFeatures::detect() {
  CpuFeatures f;
  const Registers one = cpuid(1, 0);
  if (!has(one.c, 27)) return f;  // no xgetbv: nothing wider than SSE
  const uint64_t states = saved_states();
  const bool ymm = (states & 0x6) == 0x6, zmm = (states & 0xe6) == 0xe6, tiles = (states & 0x60000) == 0x60000;
  const Registers seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  f.avx2 = ymm && has(seven.b, 5) && has(one.c, 29);  // with F16C, which every processor with AVX2 has
  f.fma = ymm && has(one.c, 12);
  f.avxvnni = f.avx2 && has(seven_one.a, 4);
  // Our AVX-512 kernels use the F, DQ, BW and VL parts, which come together on every processor since Skylake-X.
  f.avx512f = f.avx2 && f.fma && zmm && has(seven.b, 16) && has(seven.b, 17) && has(seven.b, 30) && has(seven.b, 31);
  f.avx512vnni = f.avx512f && has(seven.c, 11);
  f.avx512bf16 = f.avx512f && has(seven_one.a, 5);
  // Measured from registers alone, an Emerald Rapids core does 83 GFLOP/s with VDPBF16PS and 179 with FMA in f32. AMD's
  // cores issue the two alike, by published tables.
  f.slow_avx512bf16 = f.avx512bf16 && made_by_intel();
  const bool amx = tiles && has(seven.d, 24) && tiles_granted();
  f.amx_bf16 = amx && has(seven.d, 22);
  f.amx_int8 = amx && has(seven.d, 25);
  return f;
}

}  // namespace flux2
