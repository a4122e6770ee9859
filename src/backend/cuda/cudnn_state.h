#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/cudnn.h"
#include "backend/cuda/cudnn_plan.h"
#include "base/error.h"
#include "tensor/tensor.h"

// What the sources of Cudnn share: its plans, and our tensors in the library's terms.
namespace flux2 {

namespace cudnn {

// Whether the library can be opened on this machine.
bool is_installed();

// What decides a plan: the kind of work, and shape and strides of its tensors.
using Key = std::vector<int64_t>;
void add_layout(Key& key, const Tensor& t);

constexpr std::array<int, 4> kHeadsSecond{0, 2, 1, 3};     // [B, S, H, D] as [B, H, S, D]
constexpr std::array<int, 4> kChannelsSecond{0, 3, 1, 2};  // [B, H, W, C] as [B, C, H, W]
// A BF16 tensor with our axes in the order in which the library names them.
TensorSpec spec(int64_t number, const Tensor& t, const std::array<int, 4>& axes);

// Whether t [., ., ., .] is BF16 and can be read in vectors of 16 bytes along its last axis.
bool is_readable(const Tensor& t);

}  // namespace cudnn

struct Cudnn::State {
  State(cudaStream_t stream, std::shared_ptr<CudaPool> memory);
  ~State();

  // The plan for that key, built by describe() if it is new; null if the library rejected it.
  template <class Describe>
  const cudnn::Plan* plan_for(const cudnn::Key& key, const Describe& describe) {
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second ? &*found->second : nullptr;
    if (plans.size() >= kMaxPlans) return nullptr;
    std::optional<cudnn::Plan>& plan = plans[key];
    try {
      plan.emplace(handle, describe());
    } catch (const Error&) {
      return nullptr;
    }
    return &*plan;
  }

  // The same, but the fastest of the library's first suggestions, each run a few times on these pointers. While a graph is
  // captured nothing can be timed, and the first suggestion is taken.
  const cudnn::Plan* fastest_plan_for(const cudnn::Key& key, const std::function<cudnn::Operations()>& describe,
                                      std::span<const void* const> pointers);

  void run(const cudnn::Plan& plan, std::span<const void* const> pointers);

  // The number of plans is limited, so that a server that sees many image sizes does not grow forever. Plans are never discarded,
  // because a captured graph may use their kernels. Shapes beyond the limit run without the library.
  static constexpr size_t kMaxPlans = 4096;

  std::shared_ptr<CudaPool> pool;
  cudaStream_t stream = nullptr;
  cudnnHandle_t handle = nullptr;
  std::map<cudnn::Key, std::optional<cudnn::Plan>> plans;

 private:
  double seconds_of(const cudnn::Plan& plan, std::span<const void* const> pointers);
};

}  // namespace flux2
