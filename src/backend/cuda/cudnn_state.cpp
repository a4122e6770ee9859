#include "backend/cuda/cudnn_state.h"

#include <utility>

namespace flux2 {

namespace cudnn {

namespace {

// The stride of an axis, or, where it has one element and the stride means nothing, that of a dense tensor: the library
// reads the layout off the strides.
int64_t stride_of(const Tensor& t, int axis) {
  if (t.dim(axis) > 1) return t.stride(axis);
  return axis + 1 < t.rank() ? t.dim(axis + 1) * stride_of(t, axis + 1) : 1;
}

}  // namespace

void add_layout(Key& key, const Tensor& t) {
  for (int axis = 0; axis < t.rank(); ++axis) {
    key.push_back(t.dim(axis));
    key.push_back(stride_of(t, axis));
  }
}

TensorSpec spec(int64_t number, const Tensor& t, const std::array<int, 4>& axes) {
  TensorSpec s{number, CUDNN_DATA_BFLOAT16, {}, {}};
  for (int axis : axes) {
    s.dims.push_back(t.dim(axis));
    s.strides.push_back(stride_of(t, axis));
  }
  return s;
}

bool is_readable(const Tensor& t) {
  bool fits = t.dtype() == DType::BF16 && t.stride(3) == 1 && t.dim(3) % 8 == 0;
  for (int axis = 0; axis < 3; ++axis) fits = fits && (t.dim(axis) == 1 || t.stride(axis) % 8 == 0);
  return fits && reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

}  // namespace cudnn

Cudnn::State::State(cudaStream_t queue, std::shared_ptr<CudaPool> memory) : pool(std::move(memory)), stream(queue) {
  cudnn::check_cudnn(cudnnCreate(&handle), "starting cuDNN");
  cudnnSetStream(handle, stream);
}

Cudnn::State::~State() {
  plans.clear();
  cudnnDestroy(handle);
}

void Cudnn::State::run(const cudnn::Plan& plan, std::span<const void* const> pointers) {
  const auto workspace = pool->allocate(plan.workspace_bytes());
  plan.run(handle, pointers, workspace.get());
}

}  // namespace flux2
