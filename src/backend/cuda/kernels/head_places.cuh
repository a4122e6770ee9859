#pragma once

#include <cstdint>

namespace flux2::cuda {

// Which heads of which tokens a thread works on, in kernels where a group of threads holds a head, a block has kSlots groups and
// each of them takes kHeadsPerThread heads. With many heads (kOneToken) a block works on one token, so a thread reads what
// belongs to the token once for all of its heads; the second dimension of the grid divides the heads. With few heads a block
// takes as many tokens as give all of its threads work.
template <int kSlots, int kHeadsPerThread, bool kOneToken>
struct HeadPlaces {
  int slot;         // of this thread's group in the block
  int rows, heads;  // rows: tokens of all samples

  struct Place {
    int row, head;
  };
  __device__ Place operator[](int h) const {
    if constexpr (kOneToken) {
      return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y * kHeadsPerThread + h) * kSlots + slot};
    } else {
      const uint32_t number = (blockIdx.x * kHeadsPerThread + h) * kSlots + slot, all = heads;
      return {static_cast<int>(number / all), static_cast<int>(number % all)};
    }
  }
  __device__ bool have(const Place& p) const { return p.row < rows && p.head < heads; }
};

}  // namespace flux2::cuda
