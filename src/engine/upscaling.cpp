#include "engine/upscaling.h"

#include "backend/cpu/cpu_features.h"

namespace flux2 {

namespace {

// In profile fast, weights are rounded to bf16 where that makes products faster.
DType weight_dtype(const Engine& engine) {
  if (engine.profile() == Profile::Exact) return DType::F32;
  if (!engine.device().is_host()) return DType::BF16;
  const CpuFeatures cpu = CpuFeatures::detect();
  return cpu.bf16 || cpu.amx_bf16 || (cpu.avx512bf16 && !cpu.slow_avx512bf16) ? DType::BF16 : DType::F32;
}

Upscaler load(const Engine& engine, const WeightSource& weights, Stream& stream) {
  return load_upscaler(weights, detect_upscaler(weights),
                       {.stream = stream, .weights = weight_dtype(engine), .activations = engine.activations()});
}

}  // namespace

LoadedUpscaler::LoadedUpscaler(const Engine& engine, const std::filesystem::path& file)
    : stream_(engine.device().open_stream()), network_(in_context("loading the upscaler", [&] {
        return load(engine, *open_weights(file, engine.options().log), *stream_);
      })) {}

LoadedUpscaler::LoadedUpscaler(const Engine& engine, const WeightSource& weights)
    : stream_(engine.device().open_stream()), network_(load(engine, weights, *stream_)) {}

}  // namespace flux2
