#include "backend/cpu/cpu_device.h"

#include "backend/cpu/cpu_stream.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/kernels/scalar_table.h"
#include "backend/cpu/kernels/simd.h"

namespace flux2 {

std::shared_ptr<Device> open_cpu(const CpuOptions& options) {
  check(options.threads >= 0 && options.threads <= 4096, "threads is {}; use 1 to 4096, or 0 for one for each core",
        options.threads);
  const CpuFeatures features = options.scalar_only ? CpuFeatures{} : CpuFeatures::detect();
  const int threads = options.threads > 0 ? options.threads : physical_cores();
  auto device =
      std::make_shared<CpuDevice>(threads, fmt::format("{}, {} thread{}, {}", cpu_name(), threads, threads == 1 ? "" : "s",
                                                       options.scalar_only ? "scalar" : features.str()));
  cpu::install_scalar(device->table());
  if (!options.scalar_only) {
    cpu::install_simd(device->float_math(), features);
    install_gemm(device->table(), features, options.profile);
  }
  return device;
}

}  // namespace flux2
