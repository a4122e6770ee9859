#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/rate.h"

namespace flux2 {

struct PhaseForecast {
  Phase phase;
  int64_t weights = 0;      // bytes in memory during the phase
  int64_t activations = 0;  // bytes the device's pool hands out at most
  int64_t program = 0;      // on a CPU: bytes of the program itself
  double seconds = 0;

  int64_t peak() const { return weights + activations + program; }
};

// A forecast of what a request needs, from file headers alone. The pipeline itself runs on a device that counts memory and
// computes nothing. Times are estimated from the number of operations and the time that one block of each network takes now
// (rate.h).
struct Forecast {
  std::string device;
  MemorySize memory;        // of the device
  int64_t limit = 0;        // bytes that the peak is compared with: the configured limit, else what is available
  int64_t decode_tile = 0;  // positions a side that are decoded at once; 0: the whole image
  int64_t adapters = 0;     // bytes of the adapters in use
  Placement placement;
  std::string where;  // the placement in words
  std::vector<PhaseForecast> phases;

  int64_t peak() const;
  double seconds() const;
  // Adds the time of another pass that the same run makes `times` times. The model is loaded and the prompts are encoded once.
  void add(const Forecast& pass, int times);
  bool fits() const { return placement.fits && peak() <= limit; }
};

// The memory that a request needs besides the weights of transformer and text encoder, with the adapters of the engine's options.
WorkingBytes working_bytes(const Engine& engine, const ModelFiles& files, const Request& request);

// The transformer of a model on a device that counts memory and computes nothing: its parameters have sizes and no values. Opens
// headers only.
struct CountedTransformer {
  std::shared_ptr<Device> device;
  std::shared_ptr<Flux2Transformer> network;
  NetworkBytes weights;
};
CountedTransformer counted_transformer(const Engine& engine, const ModelFiles& files);
// The same without files: bf16 weights, quantised as the engine does it; or on a GPU that need not be there.
CountedTransformer counted_transformer(const Engine& engine, const Flux2Config& config);
CountedTransformer counted_on_gpu(const Flux2Config& config, Quant quant);

// What a run takes besides weights and activations: the kernels' own memory and, on a CPU, the program.
int64_t overhead_bytes(const Engine& engine);

Forecast forecast(const Engine& engine, const ModelFiles& files, const Request& request);
// The same at rates that are known: nothing is measured.
Forecast forecast(const Engine& engine, const ModelFiles& files, const Request& request, const ModelRates& rates);
// Without times, and without any measurement.
Forecast forecast_memory(const Engine& engine, const ModelFiles& files, const Request& request);

}  // namespace flux2
