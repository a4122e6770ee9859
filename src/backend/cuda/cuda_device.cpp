#include "backend/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backend/cuda/capture_gate.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/parts.h"
#include "backend/cuda/matmul_plans.h"
#include "base/error.h"

namespace flux2 {

namespace {

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaSetDevice(index), "opening the GPU");
  check_cuda(cudaGetDeviceProperties(&properties, index), "opening the GPU");
  return properties;
}

class CudaDevice final : public Device, public HasTokenKernels {
 public:
  CudaDevice(int index, const CudaOptions& options)
      : index_(index),
        properties_(properties_of(index)),
        plans_(options.plan_folder, properties_.name),
        budget_(std::make_shared<CudaBudget>(options.memory_limit, options.allow_allocation)) {
    kernels_ = cuda::kernel_table();
    if (properties_.major != 9) kernels_.linear_swiglu = nullptr;  // written in Hopper's own instructions
  }

  std::string name() const override { return fmt::format("cuda:{}", index_); }
  std::string description() const override {
    return fmt::format("{}, {} SMs, {:.0f} GiB, compute capability {}.{}", properties_.name, properties_.multiProcessorCount,
                       static_cast<double>(properties_.totalGlobalMem) / (1 << 30), properties_.major, properties_.minor);
  }
  bool is_host() const override { return false; }
  std::shared_ptr<Stream> open_stream() override {
    return std::make_shared<CudaStream>(shared_from_this(), index_, plans_, budget_);
  }
  const TokenKernels& token_kernels() const override { return token_kernels_; }
  bool prefers_graphs() const override { return true; }
  bool multiplies(DType dtype) const override {
    return dtype == DType::I8 || (dtype == DType::F8_E4M3 && Cublas::multiplies_fp8(10 * properties_.major + properties_.minor));
  }
  bool attends_in_8_bits() const override {
    return properties_.major == 9 && properties_.minor == 0 && cuda::has_eight_bit_attention();
  }
  MemorySize memory() const override {
    const OutsideCaptures here;
    size_t free = 0, total = 0;
    if (cudaSetDevice(index_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
    if (budget_->limit() > 0) free = std::min(free, budget_->limit() - std::min(budget_->limit(), budget_->held()));
    return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }
  std::optional<CudaGeometry> random_geometry() const override {
    return CudaGeometry{properties_.multiProcessorCount, properties_.maxThreadsPerMultiProcessor};
  }

 private:
  const TokenKernels token_kernels_ = cuda::token_kernel_table();
  int index_;
  cudaDeviceProp properties_;
  MatmulPlans plans_;
  std::shared_ptr<CudaBudget> budget_;
};

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string no_cuda_reason() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  int driver = 0;  // stays 0 without one, which the runtime reports as an old one
  cudaDriverGetVersion(&driver);
  if (status == cudaErrorInsufficientDriver && driver > 0)
    return fmt::format("the NVIDIA driver is too old for CUDA {}.{}, which this program was built with", CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
  return "no NVIDIA GPU or driver was found on this machine";
}

std::string cuda_problem(int index) {
  cudaDeviceProp p{};
  if (cudaSetDevice(index) != cudaSuccess || cudaGetDeviceProperties(&p, index) != cudaSuccess) {
    const char* why = cudaGetErrorString(cudaGetLastError());
    return fmt::format("GPU {} cannot be opened: {}", index, why);
  }
  if (p.major < 8)
    return fmt::format("{} has compute capability {}.{}; 8.0 (30 series, A100) or later is needed", p.name, p.major, p.minor);
  if (const std::string why = cuda::missing_image(); !why.empty())
    return fmt::format("this build has no code for {} (compute capability {}.{}): {}", p.name, p.major, p.minor, why);
  return {};
}

std::string cuda_identity(Stream& stream) {
  const auto* cuda = dynamic_cast<const CudaStream*>(&stream);
  if (!cuda) return {};
  const OutsideCaptures here;
  cuda->make_current();
  int index = 0;
  check_cuda(cudaGetDevice(&index), "asking for the GPU");
  const cudaDeviceProp properties = properties_of(index);
  std::string digits;
  for (const char byte : properties.uuid.bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

std::shared_ptr<Device> open_cuda(int index, const CudaOptions& options) {
  const int count = cuda_device_count();
  if (count == 0)
    throw Error(ErrorCode::Device, "no usable NVIDIA GPU on this machine",
                Hint("check nvidia-smi, or use {0}", {set_option("device", "cpu")}));
  if (index < 0 || index >= count) fail(ErrorCode::Device, "there is no GPU {}; this machine has {}", index, count);
  if (const std::string problem = cuda_problem(index); !problem.empty())
    throw Error(ErrorCode::Device, problem,
                Hint("build it for this GPU with FLUX2_CUDA_ARCHITECTURES=all, or use {0}", {set_option("device", "cpu")}));
  return std::make_shared<CudaDevice>(index, options);
}

}  // namespace flux2
