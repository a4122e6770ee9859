#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/cuda_pool.h"
#include "tensor/kernels.h"

namespace flux2 {

// cuDNN on one stream: attention and convolution over BF16, summed in F32. Each call returns whether it enqueued the work. It
// returns false and does nothing if the library is not installed or cannot handle these tensors. A plan is built once per shape
// and cached. Nothing is timed, so the same shape always runs the same kernel.
class Cudnn {
 public:
  Cudnn(cudaStream_t stream, std::shared_ptr<CudaPool> pool);
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  ~Cudnn();

  // Without causal or key_mask.
  bool attention(const AttentionArgs& args);
  // The same, with as many key heads as query heads, 64 or 128 wide. Over long sequences the order of the sums of dq is not
  // fixed: its last bits vary from run to run.
  bool attention_grad(const AttentionGradArgs& args);

  // Channels that are multiples of 8, all tensors BF16 and contiguous. The residual, of y's shape, is added before rounding.
  bool convolution(const Conv2dArgs& args, const Tensor* residual);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flux2
