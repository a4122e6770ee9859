#include "backend/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/error.h"

namespace flux2 {

namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    check_cuda(cudaSetDevice(index), "opening the GPU");
    check_cuda(cudaGetDeviceProperties(&properties_, index), "opening the GPU");
    kernels_ = cuda::kernel_table();
  }

  std::string name() const override { return fmt::format("cuda:{}", index_); }
  std::string description() const override {
    return fmt::format("{}, {} SMs, {:.0f} GiB, compute capability {}.{}", properties_.name, properties_.multiProcessorCount,
                       static_cast<double>(properties_.totalGlobalMem) / (1 << 30), properties_.major, properties_.minor);
  }
  bool is_host() const override { return false; }
  std::shared_ptr<Stream> open_stream() override { return std::make_shared<CudaStream>(shared_from_this(), index_); }

 private:
  int index_;
  cudaDeviceProp properties_{};
};

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::shared_ptr<Device> open_cuda(int index) {
  const int count = cuda_device_count();
  if (count == 0) throw Error(ErrorCode::Device, "no usable NVIDIA GPU on this machine", "check nvidia-smi, or use the CPU");
  if (index < 0 || index >= count) fail(ErrorCode::Device, "there is no GPU {}; this machine has {}", index, count);
  return std::make_shared<CudaDevice>(index);
}

}  // namespace flux2
