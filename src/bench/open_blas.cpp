#include "bench/open_blas.h"

#include <dlfcn.h>

namespace flux2 {

std::optional<OpenBlas> OpenBlas::find() {
  void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);  // stays open: it keeps threads
  if (!library) return std::nullopt;
  OpenBlas blas;
  blas.sgemm_ = reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
  blas.set_threads_ = reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"));
  const auto config = reinterpret_cast<const char* (*)()>(::dlsym(library, "openblas_get_config"));
  if (!blas.sgemm_ || !blas.set_threads_) return std::nullopt;
  blas.name_ = config ? config() : "OpenBLAS";
  return blas;
}

void OpenBlas::multiply(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y) const {
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;  // as cblas.h numbers them
  const auto i = [](int64_t v) { return static_cast<int>(v); };
  sgemm_(kRowMajor, kPlain, kTransposed, i(m), i(n), i(k), 1.0f, x, i(k), w, i(k), 0.0f, y, i(n));
}

}  // namespace flux2
