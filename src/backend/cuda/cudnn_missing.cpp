#include "backend/cuda/cudnn.h"

// Built where cuDNN is not installed.
namespace flux2 {

struct Cudnn::State {};

Cudnn::Cudnn(cudaStream_t, std::shared_ptr<CudaPool>) {}
Cudnn::~Cudnn() = default;

bool Cudnn::attention(const AttentionArgs&) { return false; }
bool Cudnn::attention_grad(const AttentionGradArgs&) { return false; }
bool Cudnn::convolution(const Conv2dArgs&, const Tensor*) { return false; }

}  // namespace flux2
