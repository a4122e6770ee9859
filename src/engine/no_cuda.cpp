#include "base/error.h"
#include "engine/backends.h"
#include "engine/gpu_ranks.h"

namespace flux2 {

bool built_with_cuda() { return false; }

int gpu_count() { return 0; }

std::string gpu_problem(int) { return "this build has no CUDA backend"; }

std::shared_ptr<Device> open_gpu(int, const std::filesystem::path&, int64_t) {
  throw Error(
      ErrorCode::Device, "this build has no CUDA backend",
      Hint("build it where a CUDA toolkit is installed (cmake -DFLUX2_CUDA=ON), or use {0}", {set_option("device", "cpu")}));
}

bool built_with_nccl() { return false; }

GpuSums gpu_sums() { return {.problem = gpu_problem(0), .version = {}}; }

std::string gpu_identity(Stream&) { return {}; }

std::shared_ptr<StreamCommunicator> open_gpu_sums(const std::shared_ptr<Stream>&, const StreamCommunicatorOptions&) {
  fail(ErrorCode::Device, "{}", gpu_problem(0));
}

std::vector<DeviceReport> gpu_reports() { return {{"cuda", "this build has no CUDA backend", false}}; }

}  // namespace flux2
