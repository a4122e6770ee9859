#include "backend/cuda/cuda_device.h"
#include "backend/cuda/nccl_communicator.h"
#include "engine/backends.h"
#include "engine/gpu_ranks.h"

namespace flux2 {

bool built_with_cuda() { return true; }

int gpu_count() { return cuda_device_count(); }

std::string gpu_problem(int index) { return cuda_problem(index); }

std::shared_ptr<Device> open_gpu(int index, const std::filesystem::path& plan_folder, int64_t memory_limit) {
  return open_cuda(index, {.plan_folder = plan_folder, .memory_limit = static_cast<size_t>(memory_limit)});
}

std::vector<DeviceReport> gpu_reports() {
  std::vector<DeviceReport> reports;
  for (int i = 0; i < cuda_device_count(); ++i) {
    if (const std::string problem = cuda_problem(i); !problem.empty()) {
      reports.push_back({"cuda:" + std::to_string(i), problem, false});
      continue;
    }
    const auto device = open_cuda(i);
    reports.push_back({device->name(), device->description(), true});
  }
  if (reports.empty()) reports.push_back({"cuda", no_cuda_reason(), false});
  return reports;
}

GpuSums gpu_sums() {
  GpuSums sums{.problem = nccl_problem(), .version = {}};
  if (sums.problem.empty()) sums.version = nccl_version();
  return sums;
}

std::string gpu_identity(Stream& stream) { return cuda_identity(stream); }

std::shared_ptr<StreamCommunicator> open_gpu_sums(const std::shared_ptr<Stream>& stream,
                                                  const StreamCommunicatorOptions& options) {
  return open_nccl(stream, options);
}

}  // namespace flux2
