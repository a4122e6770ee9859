#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace flux2::gemm {

constexpr int kMaxTileRows = 32;
constexpr int64_t kScaleBlock = 32;  // elements of a stored block that share a scale (Q8_0, Q4_0)

// Where a run over a block of K stands among those that share a tile.
struct Pass {
  bool first;  // start from zero instead of what the tile holds
  bool last;   // leave the tile as f32, row-major; until then its type and order are the kernel's own
};

// The inner product of one instruction set: tile[mr, nr] += a[mr, k] · b[nr, k]ᵀ for operands that were interleaved into panels.
// The layout of the panels is private to the kernel. Sums are f32 or, of integers, int32; each element of the tile is summed over
// k in one order that depends on k alone, so a result does not change with the place of its row.
//
// The files that fill this in are compiled for their instruction set. They define nothing but these functions and
// call no inline function of a shared header, which the linker might keep for machines that lack the instructions.
struct TileKernel {
  const char* name;
  int mr, nr;          // at most kMaxTileRows each way
  int kr;              // a panel holds a multiple of kr steps of k, padded with what adds nothing
  int a_step, b_step;  // bytes of a panel for kr steps of k
  int b_extra = 0;     // bytes of a panel of b besides, whatever its k: the sums of its rows, say
  int columns = 144;   // of b to pack at a time; with their tiles of the result they stay in the second cache level

  // k is a multiple of kr; tile is mr · nr consecutive floats.
  void (*run)(int64_t k, const void* a, const void* b, float* tile, Pass pass);

  // The instruction the kernel is made of, and a function that issues it on registers alone, `iterations` > 0 times over a
  // set of independent sums. It returns the operations done, a multiply-add counted as two. Null where none stands out.
  const char* instruction = nullptr;
  double (*ceiling)(int64_t iterations) = nullptr;

  // Called by a thread before and after its runs or a measurement of the ceiling, where a unit has to be set up.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;

  int64_t a_bytes(int64_t k) const { return k / kr * a_step; }
  int64_t b_bytes(int64_t k) const { return k / kr * b_step + b_extra; }
};

// While it lives the thread may call kernel.run.
class Running {
 public:
  explicit Running(const TileKernel& kernel) : kernel_(kernel) {
    if (kernel_.begin) kernel_.begin();
  }
  ~Running() {
    if (kernel_.end) kernel_.end();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const TileKernel& kernel_;
};

// Interleaves k elements of each row into a panel.
template <class T>
using PackRows = void (*)(int64_t k, const T* const* rows, void* panel);

// convert() of convert.h as an instruction set does it; false for what it leaves to that one.
template <class T>
using ConvertRow = bool (*)(DType dtype, const void* row, int64_t start, int64_t count, T* out);

// Rows of a that lie in an image: run t of row r is k elements from first + r · row_bytes + offsets[t] on. The sum over all
// runs is one element of a convolution.
struct TapRows {
  const std::byte* first;
  int64_t row_bytes;
  const int64_t* offsets;  // in bytes
  int64_t taps, k;         // k is a multiple of kr
};

// The inner product with such rows, which are read where they lie. Packing them first takes as long as multiplying them by 70 to
// 100 columns in f32, which is most of the time of a convolution with few output channels. Same tile, same order of sums.
template <class T>
struct TapKernel {
  void (*run)(const TapRows& a, const void* b, float* tile) = nullptr;  // b: a panel for each tap, one behind the other
  PackRows<T> pack_b = nullptr;                                         // nr rows
};

// Both operands as rows of T: float, bf16, or int8_t with int32 sums. Panels of float and bf16 are rows · k elements.
template <class T>
struct MicroKernel : TileKernel {
  PackRows<T> pack_a, pack_b;  // mr and nr rows
  ConvertRow<T> convert = nullptr;
  TapKernel<T> in_place = {};  // null where there is none
};

// a as rows of int8, b as rows of int8 with an f32 scale for each kScaleBlock of them; kr is a multiple of that.
// The sums are f32: Σ over blocks of scale · (the block's products, summed in int32).
struct BlockKernel : TileKernel {
  PackRows<int8_t> pack_a;
  void (*pack_b)(int64_t k, const int8_t* const* rows, const float* const* scales, void* panel);
};

namespace scalar_f32 {
extern const MicroKernel<float> kKernel;  // plain C++ for machines without a kernel of their own
}

}  // namespace flux2::gemm
