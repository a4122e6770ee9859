#include "engine/rate.h"

#include <algorithm>
#include <chrono>

#include "hub/synth_values.h"
#include "nn/load.h"
#include "ops/linear.h"

namespace flux2 {

double product_rate(const Engine& engine, int repeat) {
  const bool host = engine.device().is_host();
  const int64_t rows = host ? 768 : 8192, size = host ? 3072 : 8192;
  const auto stream = engine.device().open_stream();
  const DType stored = engine.profile() == Profile::Exact ? DType::F32 : DType::BF16;
  Tensor x = random_tensor(*stream, engine.activations(), {rows, size}, "x");
  Tensor w = random_tensor(*stream, stored, {size, size}, "w");
  // On a GPU all but fp8 is unpacked for the product, which is then the plain one.
  if (engine.quant() != Quant::None && (host || engine.quant() == Quant::Fp8)) {
    ThreadPool threads(engine.options().threads);
    w = quantised_on(*stream, w, engine.quant(), threads);
    x = as_input(x, input_dtype(x, w));
  }
  const Tensor y = Tensor::empty(*stream, engine.activations(), {rows, size});
  std::vector<double> times;
  for (int i = 0; i < repeat + 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    engine.device().kernels().linear({x, w, nullptr, y});
    stream->wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) times.push_back(seconds);  // the first brings memory and algorithms into place
  }
  std::sort(times.begin(), times.end());
  return 2.0 * static_cast<double>(rows * size * size) / times[times.size() / 2];
}

}  // namespace flux2
