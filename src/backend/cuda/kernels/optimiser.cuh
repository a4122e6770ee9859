#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/kernels/device_math.cuh"
#include "tensor/optimiser_rules.h"

// What the two files of the optimiser share. One launch covers all tensors: a block finds its tensor, and which part of it to
// take, in a table.
namespace flux2::cuda {

constexpr int kOptimiserThreads = 256;

struct OptimiserTable {
  const OptimiserTensor* tensors;
  const int64_t* first;  // [count + 1]: the first block of each tensor
  int count;
};

struct OptimiserStep {
  RuleNumbers numbers;
  uint64_t seed, step;
  const float* signed_codes;
  const float* unsigned_codes;
};

struct TensorPart {
  int tensor;
  int64_t index;
};

__device__ inline TensorPart part_of(const OptimiserTable& table, int64_t block) {
  int low = 0, high = table.count;  // first[low] ≤ block < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first[middle] <= block) low = middle;
    else high = middle;
  }
  return {low, block - table.first[low]};
}

__device__ inline float load_parameter(const OptimiserTensor& t, int64_t i) {
  return t.p_is_bf16 ? as_float(static_cast<const Bf16*>(t.p)[i]) : static_cast<const float*>(t.p)[i];
}

__device__ inline float load_gradient(const OptimiserTensor& t, const OptimiserStep& step, int64_t i) {
  const float g = t.g_is_bf16 ? as_float(static_cast<const Bf16*>(t.g)[i]) : static_cast<const float*>(t.g)[i];
  return g * step.numbers.gradient_scale;
}

__device__ inline void store_parameter(const OptimiserTensor& t, const OptimiserStep& step, int64_t i, float v) {
  if (!t.p_is_bf16) {
    static_cast<float*>(t.p)[i] = v;
    return;
  }
  const RandomWords words = rounding_words(step.seed, t.index, step.step, static_cast<uint32_t>(i / 4));
  const int at = static_cast<int>(i % 4);
  const uint32_t word = at == 0 ? words.word[0] : at == 1 ? words.word[1] : at == 2 ? words.word[2] : words.word[3];
  static_cast<uint16_t*>(t.p)[i] = stochastic_bf16(v, word);
}

struct PartTable {
  OptimiserTable table;
  int64_t parts;  // blocks of the launch
};

// The tensors of a call on the device, and tables over them. Memory lives as long as this; the stream's order does the rest.
class OptimiserLaunch {
 public:
  explicit OptimiserLaunch(const OptimiseArgs& args) : args_(args), stream_(static_cast<CudaStream&>(args.stream)) {
    stream_.make_current();
    tensors_ = uploaded(args.tensors.data(), args.tensors.size());
  }

  CudaStream& stream() const { return stream_; }
  OptimiserStep step() const { return {args_.numbers, args_.seed, args_.step, args_.signed_codes, args_.unsigned_codes}; }

  // A table that gives parts(tensor) blocks to each tensor.
  template <class Parts>
  PartTable table(Parts&& parts) {
    std::vector<int64_t> first(args_.tensors.size() + 1, 0);
    for (size_t i = 0; i < args_.tensors.size(); ++i) first[i + 1] = first[i] + parts(args_.tensors[i]);
    return {{tensors_, uploaded(first.data(), first.size()), static_cast<int>(args_.tensors.size())}, first.back()};
  }

  template <class T>
  T* uploaded(const T* values, size_t count) {
    const auto memory = stream_.allocate((count + 1) * sizeof(T));
    if (count > 0) stream_.upload(memory.get(), values, count * sizeof(T));
    kept_.push_back(memory);
    return static_cast<T*>(memory.get());
  }

 private:
  const OptimiseArgs& args_;
  CudaStream& stream_;
  const OptimiserTensor* tensors_ = nullptr;
  std::vector<std::shared_ptr<void>> kept_;
};

void optimise_factored(OptimiserLaunch& launch, const OptimiseArgs& args);  // Adafactor and CAME

}  // namespace flux2::cuda
