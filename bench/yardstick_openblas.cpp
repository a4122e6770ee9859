#include <cblas.h>

#include "bench/yardstick.h"

namespace bench {

const char* yardstick_name() { return openblas_get_config(); }

void yardstick_sgemm(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1.0f, x,
              static_cast<int>(k), w, static_cast<int>(k), 0.0f, y, static_cast<int>(n));
}

}  // namespace bench
