// Attention, convolutions and the autoencoder on one GPU, on the shapes of klein-4B: times against the rate of a large
// matrix product and of a large copy measured in the same run.
//   cuda_bench [name part …]     only cases whose name holds one of the parts
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/kernels/parts.h"
#include "model/vae.h"
#include "tensor/tensor.h"

namespace {

using namespace flux2;

class Bench {
 public:
  explicit Bench(std::vector<std::string> parts) : parts_(std::move(parts)) {
    cudaEventCreate(&start_);
    cudaEventCreate(&stop_);
  }
  ~Bench() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }

  const Kernels& kernels() const { return device_->kernels(); }
  Stream& stream() const { return *stream_; }
  const Device& device() const { return *device_; }

  Tensor random(const Shape& shape, double spread = 1.0) {
    // One block of noise, repeated: making gigabytes of it on the host would take longer than the measurements.
    if (!noise_.defined()) {
      std::vector<float> values(size_t{1} << 22);
      uint64_t state = 12345;
      for (float& v : values) {
        double sum = -6.0;  // twelve uniforms are near enough to a normal
        for (int i = 0; i < 12; ++i)
          sum += static_cast<double>((state = state * 6364136223846793005u + 1442695040888963407u) >> 40) * 0x1p-24;
        v = static_cast<float>(sum);
      }
      noise_ = Tensor::from<float>(*stream_, DType::BF16, {int64_t{1} << 22}, values);
    }
    const Tensor t = Tensor::empty(*stream_, DType::BF16, {shape.numel()});
    for (int64_t at = 0; at < t.numel(); at += noise_.numel()) {
      const int64_t n = std::min(noise_.numel(), t.numel() - at);
      kernels().scale({noise_.narrowed(0, 0, n), t.narrowed(0, at, n), spread, 0.0});
    }
    return t.reshaped(shape);
  }

  bool wants(const std::string& name) const {
    return parts_.empty() ||
           std::any_of(parts_.begin(), parts_.end(), [&](const std::string& p) { return name.find(p) != std::string::npos; });
  }

  // Median milliseconds of 25 runs after 5.
  double time(const std::function<void()>& work) {
    const auto handle = static_cast<CudaStream&>(*stream_).handle();
    std::vector<double> times;
    for (int run = 0; run < 30; ++run) {
      cudaEventRecord(start_, handle);
      work();
      cudaEventRecord(stop_, handle);
      stream_->wait();
      float ms = 0;
      cudaEventElapsedTime(&ms, start_, stop_);
      if (run >= 5) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void flops(const std::string& name, double flop, const std::function<void()>& work) {
    if (!wants(name)) return;
    const double ms = time(work), rate = flop / ms * 1e-9;
    fmt::print("{:<44} {:9.3f} ms {:8.1f} TFLOP/s {:5.1f} %\n", name, ms, rate, 100 * rate / best_flops_);
    std::fflush(stdout);
  }
  void bytes(const std::string& name, double bytes, const std::function<void()>& work) {
    if (!wants(name)) return;
    const double ms = time(work), rate = bytes / ms * 1e-9;
    fmt::print("{:<44} {:9.3f} ms {:8.3f} TB/s    {:5.1f} %\n", name, ms, rate, 100 * rate / best_bytes_);
    std::fflush(stdout);
  }

  void measure_ceilings() {
    const int64_t n = 8192;
    const Tensor a = random({n, n}), b = random({n, n}), c = Tensor::like(a);
    best_flops_ = 2.0 * n * n * n / time([&] { kernels().linear({a, b, nullptr, c}); }) * 1e-9;
    const Tensor x = random({int64_t{1} << 30}), y = Tensor::like(x);
    best_bytes_ = 4.0 * static_cast<double>(x.numel()) / time([&] { kernels().copy({x, y}); }) * 1e-9;
    fmt::print("{}\nceilings: product {:.0f} TFLOP/s, copy {:.2f} TB/s; medians of 25 runs\n", device_->description(),
               best_flops_, best_bytes_);
  }

 private:
  std::vector<std::string> parts_;
  std::shared_ptr<Device> device_ = open_cuda(0);
  std::shared_ptr<Stream> stream_ = device_->open_stream();
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Tensor noise_;
  double best_flops_ = 1, best_bytes_ = 1;
};

// q, k and v as views of one fused projection.
void attention_cases(Bench& bench) {
  for (int64_t s : {77, 512, 768, 1536, 4608, 8704, 16896}) {
    const int64_t heads = 24, width = 128, dim = heads * width;
    const double flop = 4.0 * static_cast<double>(s * s * dim);
    const Tensor qkv = bench.random({1, s, 3 * dim}), y = bench.random({1, s, heads, width});
    const auto part = [&](int64_t i) { return qkv.narrowed(2, i * dim, dim).reshaped({1, s, heads, width}); };
    const Tensor q = part(0), k = part(1), v = part(2);
    const AttentionArgs plain{q, k, v, y, nullptr, nullptr, 0.0883883f, false};
    bench.flops(fmt::format("attention {} tokens", s), flop, [&] { bench.kernels().attention(plain); });
    bench.flops(fmt::format("attention {} tokens, own kernel", s), flop, [&] { cuda::flash_attention(plain); });
  }
  {
    const Tensor q = bench.random({1, 512, 32, 128}), k = bench.random({1, 512, 8, 128}), v = bench.random(k.shape()),
                 y = Tensor::like(q);
    bench.flops("attention 512 tokens, causal, 32/8 heads", 2.0 * 512 * 512 * 4096, [&] {
      bench.kernels().attention({q, k, v, y, nullptr, nullptr, 0.0883883f, true});
    });
  }
  const int64_t positions = 128 * 128;
  const Tensor q = bench.random({1, positions, 1, 512}, 0.2), k = bench.random(q.shape(), 0.2), v = bench.random(q.shape()),
               y = Tensor::like(q);
  bench.flops("attention 16384 positions, one head of 512", 4.0 * positions * positions * 512, [&] {
    bench.kernels().attention({q, k, v, y, nullptr, nullptr, 0.0441942f, false});
  });
}

void convolution_cases(Bench& bench) {
  struct Case {
    int64_t side, in, out;
    int stride;
  };
  for (const auto& [side, in, out, stride] : {Case{128, 32, 512, 1},
                                              {128, 512, 512, 1},
                                              {256, 512, 512, 1},
                                              {512, 512, 256, 1},
                                              {512, 256, 256, 1},
                                              {1024, 256, 128, 1},
                                              {1024, 128, 128, 1},
                                              {1024, 128, 3, 1},
                                              {1024, 3, 128, 1},
                                              {1024, 128, 128, 2},
                                              {512, 256, 256, 2},
                                              {256, 512, 512, 2}}) {
    const Tensor x = bench.random({1, side, side, in}), w = bench.random({out, 3, 3, in}, 0.02), bias = bench.random({out});
    const Tensor y = Tensor::like(x, {1, side / stride, side / stride, out});
    const double flop = 2.0 * static_cast<double>(y.numel() * 9 * in);
    const ConvShape conv{stride, stride == 1, stride == 1};
    const std::string name = fmt::format("conv 3x3 {}² {} to {}{}", side, in, out, stride == 2 ? " stride 2" : "");
    bench.flops(name, flop, [&] { bench.kernels().conv2d({x, w, &bias, y, conv}); });
    if (stride == 1 && out >= 128) {
      const Tensor residual = bench.random(y.shape());
      bench.flops(name + ", added", flop, [&] { bench.kernels().conv2d_add({x, w, &bias, residual, y, conv}); });
    }
  }
  for (const auto& [side, channels] : {std::pair<int64_t, int64_t>{128, 512}, {256, 512}, {512, 256}}) {
    const Tensor x = bench.random({1, side, side, channels}), w = bench.random({channels, 3, 3, channels}, 0.02),
                 bias = bench.random({channels}), y = Tensor::like(x, {1, 2 * side, 2 * side, channels});
    bench.bytes(fmt::format("upsample {}² of {}", side, channels), 2.5 * static_cast<double>(y.numel()), [&] {
      bench.kernels().upsample({x, y});
    });
    bench.flops(fmt::format("upsample and conv {}² of {}", side, channels), 2.0 * static_cast<double>(y.numel() * 4 * channels),
                [&] {
                  bench.kernels().upsample_conv2d({x, w, &bias, y});
                });
  }
}

void memory_cases(Bench& bench) {
  for (const auto& [side, channels] :
       {std::pair<int64_t, int64_t>{128, 512}, {256, 512}, {512, 256}, {512, 512}, {1024, 128}, {1024, 256}}) {
    const Tensor x = bench.random({1, side, side, channels}), y = Tensor::like(x), w = bench.random({channels});
    const double size = 2.0 * static_cast<double>(x.numel());
    const std::string what = fmt::format(" {}² of {}", side, channels);
    bench.bytes("group norm + silu" + what, 3 * size, [&] { bench.kernels().group_norm({x, w, w, y, 32, 1e-6f, true}); });
    bench.bytes("add" + what, 3 * size, [&] { bench.kernels().binary({Binary::Add, x, y, y}); });
  }
}

void vae_cases(Bench& bench) {
  Vae vae{VaeConfig{}};
  vae.visit([&](const Parameter& p) {
    const Shape shape = p.kind == ParameterKind::Conv ? Shape{p.shape[0], p.shape[2], p.shape[3], p.shape[1]} : p.shape;
    const double fan_in = static_cast<double>(p.shape.numel()) / static_cast<double>(p.shape[0]);
    p.tensor = bench.random(shape, p.kind == ParameterKind::Conv ? 1.0 / std::sqrt(fan_in) : 0.1);
    if (p.kind == ParameterKind::Vector || p.kind == ParameterKind::Statistic)
      bench.kernels().scale({p.tensor, p.tensor, 0.1, 1.0});
    if (p.kind == ParameterKind::Statistic) p.tensor = p.tensor.cast(DType::F32);
  });
  const Tensor latents = bench.random({1, 64 * 64, 128}).cast(DType::F32), picture = bench.random({1, 1024, 1024, 3}, 0.5);
  bench.flops("VAE decode 1024²", 10.475e12, [&] { vae.decode(latents, 64, 64); });
  bench.flops("VAE encode 1024²", 4.888e12, [&] { vae.encode(picture); });
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda_device_count() == 0) {
    fmt::print("no GPU on this machine\n");
    return 1;
  }
  Bench bench({argv + 1, argv + argc});
  bench.measure_ceilings();
  attention_cases(bench);
  convolution_cases(bench);
  memory_cases(bench);
  vae_cases(bench);
}
