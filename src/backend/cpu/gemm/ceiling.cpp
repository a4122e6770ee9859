#include "backend/cpu/gemm/ceiling.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "backend/cpu/gemm/panels.h"

namespace flux2::gemm {

const TileKernel& kernel_for(const KernelSet& set, DType weight) {
  if (weight == DType::I8 && set.in_int8) return *set.in_int8;
  if (is_block_type(weight) && set.in_blocks) return *set.in_blocks;
  if (weight != DType::F32 && set.in_bf16) return *set.in_bf16;
  return *set.in_f32;
}

double measure_ceiling(const TileKernel& kernel, ThreadPool& threads) {
  if (!kernel.ceiling) return 0;
  constexpr int kRuns = 25;
  constexpr int64_t kIterations = 400'000;  // about a millisecond
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> operations(static_cast<size_t>(threads.size()));
    const auto start = std::chrono::steady_clock::now();
    threads.parallel_for(threads.size(), [&](int64_t i) {
      const Running running(kernel);
      operations[static_cast<size_t>(i)] = kernel.ceiling(kIterations);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, std::accumulate(operations.begin(), operations.end(), 0.0) / seconds.count());
  }
  return best;
}

}  // namespace flux2::gemm
