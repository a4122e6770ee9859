#include "bench/yardstick.h"

namespace bench {

const char* yardstick_name() { return "nothing (OpenBLAS was not found)"; }
void yardstick_sgemm(int64_t, int64_t, int64_t, const float*, const float*, float*) {}

}  // namespace bench
