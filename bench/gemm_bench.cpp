// The parts of a matrix product, each micro-kernel of this machine by itself: packing, running and the bare instruction; and the
// 3×3 convolutions of an autoencoder on one thread. `flux2 bench gemm` times whole products.
//   gemm_bench --benchmark_filter='run.*int8'
//   gemm_bench --benchmark_filter=conv
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/gemm/gemm.h"
#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace {

using namespace flux2;
using namespace flux2::gemm;

constexpr int64_t kBytes = 1024;  // of a row of a: a block of K as the driver cuts it

void count(benchmark::State& state, const char* what, double each) {
  state.counters[what] =
      benchmark::Counter(each, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::OneK::kIs1000);
}

void add(const std::string& name, void (*body)(benchmark::State&, const TileKernel&, int64_t), const TileKernel& kernel,
         int64_t k) {
  benchmark::RegisterBenchmark(name.c_str(), [body, &kernel, k](benchmark::State& state) { body(state, kernel, k); });
}

// Panels and tile in the first cache level, a pass in the middle of a sum.
void run(benchmark::State& state, const TileKernel& kernel, int64_t k) {
  const Running running(kernel);
  const std::vector<std::byte> a(static_cast<size_t>(kernel.a_bytes(k))), b(static_cast<size_t>(kernel.b_bytes(k)));
  std::vector<float> tile(static_cast<size_t>(kernel.mr * kernel.nr));
  for (auto _ : state) kernel.run(k, a.data(), b.data(), tile.data(), {false, false});
  count(state, "op/s", 2.0 * static_cast<double>(kernel.mr * kernel.nr * k));
}

void instruction(benchmark::State& state, const TileKernel& kernel, int64_t) {
  const Running running(kernel);
  constexpr int64_t kIterations = 1000;
  double operations = 0;
  for (auto _ : state) operations = kernel.ceiling(kIterations);
  count(state, "op/s", operations);
}

template <class T>
std::vector<std::vector<T>> make_rows(int count, int64_t k) {
  return std::vector<std::vector<T>>(static_cast<size_t>(count), std::vector<T>(static_cast<size_t>(k)));
}

template <class T>
std::vector<const T*> pointers(const std::vector<std::vector<T>>& rows) {
  std::vector<const T*> first;
  for (const auto& row : rows) first.push_back(row.data());
  return first;
}

template <class T>
void pack_b(benchmark::State& state, const TileKernel& tile_kernel, int64_t k) {
  const auto& kernel = static_cast<const MicroKernel<T>&>(tile_kernel);
  const auto rows = make_rows<T>(kernel.nr, k);
  std::vector<std::byte> panel(static_cast<size_t>(kernel.b_bytes(k)));
  for (auto _ : state) kernel.pack_b(k, pointers(rows).data(), panel.data());
  count(state, "element/s", static_cast<double>(kernel.nr * k));
}

void pack_blocks(benchmark::State& state, const TileKernel& tile_kernel, int64_t k) {
  const auto& kernel = static_cast<const BlockKernel&>(tile_kernel);
  const auto rows = make_rows<int8_t>(kernel.nr, k);
  const auto scales = make_rows<float>(kernel.nr, k / kScaleBlock);
  std::vector<std::byte> panel(static_cast<size_t>(kernel.b_bytes(k)));
  for (auto _ : state) kernel.pack_b(k, pointers(rows).data(), pointers(scales).data(), panel.data());
  count(state, "element/s", static_cast<double>(kernel.nr * k));
}

void add_all(const TileKernel& kernel, int64_t k, void (*pack)(benchmark::State&, const TileKernel&, int64_t)) {
  const std::string name = kernel.name;
  add("run " + name, run, kernel, k);
  add("pack b " + name, pack, kernel, k);
  if (kernel.ceiling) add("instruction " + name, instruction, kernel, k);
}

struct Convolution {
  int64_t side, channels, outputs;
};

// f32 pixels and bf16 weights, as the autoencoder has them on a CPU.
void convolve_image(benchmark::State& state, Profile profile, Convolution c) {
  const auto device = open_cpu({.threads = 1, .profile = profile});
  const auto stream = device->open_stream();
  const auto filled = [&](DType dtype, const Shape& shape) {
    const Tensor t = Tensor::empty(*stream, dtype, shape);
    t.fill(0.5);
    return t;
  };
  const Tensor x = filled(DType::F32, {1, c.side, c.side, c.channels}), w = filled(DType::BF16, {c.outputs, 3, 3, c.channels});
  const Tensor bias = filled(DType::F32, {c.outputs}), y = Tensor::like(x, {1, c.side, c.side, c.outputs});
  for (auto _ : state) device->kernels().conv2d({x, w, &bias, y, {1, 1, 1}});
  count(state, "op/s", 2.0 * 9 * static_cast<double>(y.numel() * c.channels));
}

void add_convolutions() {
  for (Profile profile : {Profile::Exact, Profile::Fast})
    for (const Convolution& c : {Convolution{128, 32, 32},
                                 {128, 64, 32},
                                 {128, 32, 3},
                                 {64, 64, 64},
                                 {32, 128, 128},
                                 {64, 128, 128},
                                 {64, 512, 512},
                                 {256, 128, 128}})
      benchmark::RegisterBenchmark(
          fmt::format("conv {}² {} to {} {}", c.side, c.channels, c.outputs, profile == Profile::Exact ? "exact" : "fast")
              .c_str(),
          [profile, c](benchmark::State& state) { convolve_image(state, profile, c); });
}

}  // namespace

int main(int argc, char** argv) {
  const CpuFeatures features = CpuFeatures::detect();
  for (const auto* kernel : f32_kernels(features)) add_all(*kernel, kBytes / 4, pack_b<float>);
  for (const auto* kernel : bf16_kernels(features)) add_all(*kernel, kBytes / 2, pack_b<bf16>);
  for (const auto* kernel : int8_kernels(features)) add_all(*kernel, kBytes, pack_b<int8_t>);
  for (const auto* kernel : block_kernels(features)) add_all(*kernel, kBytes, pack_blocks);
  add_convolutions();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
