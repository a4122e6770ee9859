#include "backend/cpu/cpu_device.h"

#include "backend/cpu/cpu_stream.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/kernels/scalar_table.h"
#include "backend/cpu/kernels/simd.h"

namespace flux2 {

namespace {

CpuFeatures features_for(const CpuOptions& options) {
  if (options.scalar_only) return {};
  const CpuFeatures all = CpuFeatures::detect();
  if (options.level.empty()) return all;
  std::string names;
  for (const CpuLevel& level : levels_of(all)) {
    if (level.name == options.level) return level.features;
    names += (names.empty() ? "" : ", ") + level.name;
  }
  fail(ErrorCode::InvalidArgument, "this processor has no instructions called \"{}\"; use one of: {}", options.level, names);
}

}  // namespace

std::shared_ptr<Device> open_cpu(const CpuOptions& options) {
  check(options.threads >= 0 && options.threads <= 4096, "threads is {}; use 1 to 4096, or 0 for one for each core",
        options.threads);
  const CpuFeatures features = features_for(options);
  const bool scalar = options.scalar_only || options.level == "scalar";
  const int threads = options.threads > 0 ? options.threads : physical_cores();
  auto device = std::make_shared<CpuDevice>(threads, fmt::format("{}, {} thread{}, {}", cpu_name(), threads,
                                                                 threads == 1 ? "" : "s", scalar ? "scalar" : features.str()));
  cpu::install_scalar(device->table());
  if (!scalar) {
    cpu::install_simd(device->float_math(), features);
    install_gemm(device->table(), features, options.profile);
  }
  return device;
}

}  // namespace flux2
