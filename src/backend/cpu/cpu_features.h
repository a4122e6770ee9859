#pragma once

#include <string>
#include <vector>

namespace flux2 {

// Which instruction sets this machine runs, as the processor and the operating system say at run time.
struct CpuFeatures {
  bool neon = false, dotprod = false, bf16 = false, i8mm = false, sve = false;
  bool avx2 = false, fma = false, avxvnni = false, avx512f = false, avx512bf16 = false, avx512vnni = false;
  bool amx_bf16 = false, amx_int8 = false;
  bool slow_avx512bf16 = false;  // its products are not faster than those of f32

  static CpuFeatures detect();

  std::string str() const;  // "neon dotprod bf16 i8mm"
};

// A set of instructions by name; each contains those before it.
struct CpuLevel {
  std::string name;  // "scalar", "avx2"
  CpuFeatures features;
};
std::vector<CpuLevel> levels_of(const CpuFeatures& features);  // "scalar" first

std::string cpu_name();  // "Neoverse-V1"

// Physical cores this process may run on: hardware threads of one core count once, and processors outside the
// affinity mask or above the container's quota do not count. At least 1.
int physical_cores();

}  // namespace flux2
