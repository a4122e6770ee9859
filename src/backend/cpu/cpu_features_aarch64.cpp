#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/cpu_features.h"

namespace flux2 {

CpuFeatures CpuFeatures::detect() {
  const unsigned long base = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
  CpuFeatures f;
  f.neon = (base & HWCAP_ASIMD) != 0;
  f.sve = (base & HWCAP_SVE) != 0;
  f.dotprod = (base & HWCAP_ASIMDDP) != 0;
  f.bf16 = (more & HWCAP2_BF16) != 0;
  f.i8mm = (more & HWCAP2_I8MM) != 0;
  return f;
}

}  // namespace flux2
