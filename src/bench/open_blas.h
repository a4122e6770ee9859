#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace flux2 {

// OpenBLAS as it is installed, if it is: the yardstick our products are measured with. Nothing else uses it.
class OpenBlas {
 public:
  static std::optional<OpenBlas> find();

  void set_threads(int threads) const { set_threads_(threads); }
  // y[m, n] = x[m, k] · w[n, k]ᵀ in f32.
  void multiply(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y) const;
  const std::string& name() const { return name_; }  // "OpenBLAS 0.3.21 …"

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm sgemm_ = nullptr;
  void (*set_threads_)(int) = nullptr;
  std::string name_;
};

}  // namespace flux2
