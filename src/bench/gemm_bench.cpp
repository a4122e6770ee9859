#include "bench/gemm_bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm/ceiling.h"
#include "backend/cpu/gemm/gemm.h"
#include "bench/bench_inputs.h"
#include "bench/open_blas.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  double median, fastest;
};

Times measure(double seconds, const std::function<void()>& work) {
  work();  // brings pages and pools into place
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3; spent += times.back()) {
    const auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

struct Way {
  const char* name;
  Profile profile;
  DType stored;
  Quant quant;
};

constexpr Way kWays[] = {{"f32", Profile::Exact, DType::F32, Quant::None},  {"bf16", Profile::Fast, DType::BF16, Quant::None},
                         {"f16", Profile::Fast, DType::F16, Quant::None},   {"int8", Profile::Fast, DType::BF16, Quant::Int8},
                         {"q8_0", Profile::Fast, DType::BF16, Quant::Q8_0}, {"q4_0", Profile::Fast, DType::BF16, Quant::Q4_0},
                         {"fp8", Profile::Fast, DType::BF16, Quant::Fp8}};

struct Matrix {
  int64_t n, k;
};
// What klein-4B multiplies with: qkv and output of a double block, its two MLP halves, and a single block's two.
constexpr Matrix kMatrices[] = {{9216, 3072}, {3072, 3072}, {18432, 3072}, {3072, 9216}, {27648, 3072}, {3072, 12288}};

class Bench {
 public:
  explicit Bench(const GemmBenchOptions& options) : options_(options), blas_(OpenBlas::find()) {
    report_.device = open_cpu()->description();
    if (blas_) report_.yardstick = blas_->name();
    for (const std::string& name : options.kernels)
      check(std::any_of(std::begin(kWays), std::end(kWays), [&](const Way& w) { return w.name == name; }),
            "\"{}\" is not one of f32, bf16, f16, int8, q8_0, q4_0, fp8", name);
  }

  GemmBench run() {
    std::vector<int> threads = options_.threads;
    if (threads.empty()) {
      threads = {1};
      if (const int all = ThreadPool(0).size(); all > 1) threads.push_back(all);
    }
    for (int t : threads) measure_ceilings(t);
    for (const Matrix& matrix : kMatrices)
      for (const Way& way : kWays)
        if (wanted(way)) products(threads, matrix, way);
    return std::move(report_);
  }

 private:
  bool wanted(const Way& way) const {
    return options_.kernels.empty() ||
           std::find(options_.kernels.begin(), options_.kernels.end(), way.name) != options_.kernels.end();
  }

  // Once before all products.
  void measure_ceilings(int threads) {
    ThreadPool pool(threads);
    std::map<std::string, double> known;
    for (const Way& way : kWays) {
      const DType dtype = way.quant == Quant::None ? way.stored : dtype_of(way.quant);
      const auto& kernel = gemm::kernel_for(gemm::kernel_set(CpuFeatures::detect(), way.profile), dtype);
      if (!kernel.ceiling) continue;
      if (!known.contains(kernel.instruction)) known[kernel.instruction] = gemm::measure_ceiling(kernel, pool);
      ceilings_[{way.name, threads}] = {kernel.instruction, known[kernel.instruction]};
    }
  }

  // One weight for all numbers of rows and threads: making it takes longer than multiplying with it.
  void products(const std::vector<int>& threads, const Matrix& matrix, const Way& way) {
    ThreadPool pool(0);
    const auto host = open_cpu();
    const auto memory = host->open_stream();
    const Tensor stored = random_weight(*memory, way.stored, matrix);
    const Tensor w = way.quant == Quant::None ? stored : quantise(stored, way.quant, pool);
    for (int t : threads)
      for (int64_t m : options_.rows) {
        const auto device = open_cpu({.threads = t, .profile = way.profile});
        const auto stream = device->open_stream();
        const Tensor x = random_tensor(*stream, DType::F32, {m, matrix.k}, "x");
        const Tensor y = Tensor::empty(*stream, DType::F32, {m, matrix.n});
        if (way.stored == DType::F32 && blas_) {
          blas_->set_threads(t);
          add({.kernel = "openblas f32"}, t, m, matrix,
              [&] { blas_->multiply(m, matrix.n, matrix.k, x.data<float>(), w.data<float>(), y.data<float>()); });
        }
        const Ceiling& ceiling = ceilings_[{way.name, t}];
        add({.kernel = way.name, .instruction = ceiling.instruction, .ceiling = ceiling.rate}, t, m, matrix, [&] {
          device->kernels().linear({x, w, nullptr, y});
        });
      }
  }

  // A few rows of random values, repeated.
  static Tensor random_weight(Stream& stream, DType dtype, const Matrix& matrix) {
    constexpr int64_t kRows = 96;
    const Tensor some = random_tensor(stream, dtype, {kRows, matrix.k}, "w");
    const Tensor all = Tensor::empty(stream, dtype, {matrix.n, matrix.k});
    for (int64_t r = 0; r < matrix.n; r += kRows)
      all.narrowed(0, r, std::min(kRows, matrix.n - r)).copy_from(some.narrowed(0, 0, std::min(kRows, matrix.n - r)));
    return all;
  }

  void add(GemmBenchRow row, int threads, int64_t m, const Matrix& matrix, const std::function<void()>& work) {
    const Times times = measure(options_.seconds, work);
    row.threads = threads;
    row.m = m, row.n = matrix.n, row.k = matrix.k;
    row.median = times.median, row.fastest = times.fastest;
    report_.rows.push_back(std::move(row));
    if (options_.measured) options_.measured(report_.rows.back());
  }

  struct Ceiling {
    std::string instruction;
    double rate = 0;
  };

  const GemmBenchOptions& options_;
  std::map<std::pair<std::string, int>, Ceiling> ceilings_;  // by way and threads
  std::optional<OpenBlas> blas_;
  GemmBench report_;
};

}  // namespace

GemmBench bench_gemm(const GemmBenchOptions& options) { return Bench(options).run(); }

}  // namespace flux2
