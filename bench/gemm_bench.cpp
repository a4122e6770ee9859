// Matrix products on the shapes of klein-4B at 256² (768 rows), beside the best sgemm this machine offers.
//   gemm_bench [rows] [seconds per case]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "bench/yardstick.h"
#include "tensor/tensor.h"

namespace {

using namespace flux2;
using Clock = std::chrono::steady_clock;

struct Rate {
  double best = 0, median = 0;  // GFLOP/s
};

Rate measure(double flop, double seconds, const std::function<void()>& work) {
  work();  // brings pages and pools into place
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3; spent += times.back()) {
    const auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {flop / times.front() * 1e-9, flop / times[times.size() / 2] * 1e-9};
}

Tensor noise(Stream& stream, DType dtype, int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  uint32_t state = 12345;
  for (float& v : values) v = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
  return Tensor::from<float>(stream, dtype, {rows, columns}, values);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t m = argc > 1 ? std::atoll(argv[1]) : 768;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  const auto exact = open_cpu({.profile = Profile::Exact}), fast = open_cpu({.profile = Profile::Fast});
  const auto stream = exact->open_stream(), fast_stream = fast->open_stream();
  std::printf("%s; %s as yardstick; GFLOP/s, best (median)\n", exact->description().c_str(), bench::yardstick_name());
  std::printf("%-22s %16s %16s %16s %16s\n", "rows x out x in", "yardstick f32", "exact f32", "fast, bf16 w", "fast, q8_0 w");

  struct Shape2 {
    int64_t n, k;
  };
  for (const auto [n, k] : {Shape2{9216, 3072}, {3072, 3072}, {18432, 3072}, {3072, 9216}, {27648, 3072}, {3072, 12288}}) {
    const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const Tensor x = noise(*stream, DType::F32, m, k), w = noise(*stream, DType::F32, n, k);
    const Tensor y = Tensor::empty(*stream, DType::F32, {m, n}), y_fast = Tensor::empty(*fast_stream, DType::F32, {m, n});
    const Tensor w_bf16 = w.cast(DType::BF16);
    std::vector<BlockQ8_0> blocks(static_cast<size_t>(n * k / 32), BlockQ8_0{to_f16(0.01f), {3, -7, 120, -128, 55}});
    const Tensor w_q8 = Tensor::host_copy(blocks.data(), DType::Q8_0, {n, k});

    const Rate yardstick = measure(flop, seconds, [&] {
      bench::yardstick_sgemm(m, n, k, x.data<float>(), w.data<float>(), y.data<float>());
    });
    const Rate f32 = measure(flop, seconds, [&] { exact->kernels().linear({x, w, nullptr, y}); });
    const Rate bf16 = measure(flop, seconds, [&] { fast->kernels().linear({x, w_bf16, nullptr, y_fast}); });
    const Rate q8 = measure(flop, seconds, [&] { fast->kernels().linear({x, w_q8, nullptr, y_fast}); });
    char shape[64];
    std::snprintf(shape, sizeof shape, "%lldx%lldx%lld", static_cast<long long>(m), static_cast<long long>(n),
                  static_cast<long long>(k));
    std::printf("%-22s", shape);
    for (const Rate& r : {yardstick, f32, bf16, q8}) std::printf("  %6.1f (%6.1f)", r.best, r.median);
    std::printf("\n");
    std::fflush(stdout);
  }
}
