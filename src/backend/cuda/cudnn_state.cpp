#include "backend/cuda/cudnn_state.h"

#include <utility>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/op_timer.h"

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

double Cudnn::State::seconds_of(const cudnn::Plan& plan, std::span<const void* const> pointers) {
  constexpr int kRuns = 3;
  run(plan, pointers);  // the first run loads the kernel
  return seconds_on(stream,
                    [&] {
                      for (int i = 0; i < kRuns; ++i) run(plan, pointers);
                    }) /
         kRuns;
}

const cudnn::Plan* Cudnn::State::fastest_plan_for(const cudnn::Key& key, const std::function<cudnn::Operations()>& describe,
                                                  std::span<const void* const> pointers) {
  constexpr int kSuggestions = 6;
  constexpr size_t kWorkspace = size_t{64} << 20;  // more memory than the first one and this much is not worth the time
  constexpr double kWorthwhile = 0.98;             // of the time so far
  const bool is_new = !plans.contains(key);
  const cudnn::Plan* first = plan_for(key, describe);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &capture), "running a plan of cuDNN");
  if (!is_new || !first || capture != cudaStreamCaptureStatusNone) return first;
  const size_t most = first->workspace_bytes() + kWorkspace;
  std::optional<cudnn::Plan>& best = plans.at(key);
  double best_time = seconds_of(*best, pointers);
  for (int choice = 1; choice < kSuggestions; ++choice) {
    try {
      cudnn::Plan other(handle, describe(), choice);
      if (other.workspace_bytes() > most) continue;
      if (const double t = seconds_of(other, pointers); t < kWorthwhile * best_time) {
        best_time = t;
        best.emplace(std::move(other));
      }
    } catch (const Error&) {
      break;  // there are no more suggestions
    }
  }
  return &*best;
}

void Cudnn::State::run(const cudnn::Plan& plan, std::span<const void* const> pointers) {
  const auto workspace = pool->allocate(plan.workspace_bytes());
  plan.run(handle, pointers, workspace.get());
}

}  // namespace flux2
