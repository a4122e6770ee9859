#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace flux2 {

struct GemmBenchOptions {
  std::vector<int64_t> rows = {768, 1536};
  std::vector<int> threads;                                  // empty: one, and one per physical core
  double seconds = 0.5;                                      // spent on each case, at least three runs
  std::vector<std::string> kernels;                          // only these weight types; empty: all
  std::function<void(const struct GemmBenchRow&)> measured;  // called for each finished row; may be empty
};

// y[m, n] = x[m, k] · w[n, k]ᵀ with f32 activations.
struct GemmBenchRow {
  std::string kernel;       // how the weights are kept: "bf16", "int8", …; "openblas f32" for the yardstick
  std::string instruction;  // whose rate on registers alone is the ceiling; empty for the yardstick
  int threads = 1;
  int64_t m = 0, n = 0, k = 0;
  double median = 0, fastest = 0;  // seconds
  double ceiling = 0;              // operations a second of the bare instruction on so many threads, in this run

  double rate() const { return 2.0 * static_cast<double>(m * n * k) / median; }
  double percent_of_ceiling() const { return 100 * rate() / ceiling; }
};

struct GemmBench {
  std::string device, yardstick;  // the yardstick is empty when OpenBLAS is not installed
  std::vector<GemmBenchRow> rows;
};

// The CPU's matrix products on the shapes of klein-4B, weights kept in each way this machine computes with.
GemmBench bench_gemm(const GemmBenchOptions& options);

}  // namespace flux2
