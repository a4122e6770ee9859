#include "backend/cuda/kernels/launch.h"

#include <climits>

#include "base/error.h"

namespace flux2::cuda {

CudaStream& stream_for(const Tensor& t) {
  auto& stream = static_cast<CudaStream&>(t.stream());
  stream.make_current();
  return stream;
}

void refuse_dtype(const char* op, DType dtype) {
  fail(ErrorCode::Internal, "{}: no GPU kernel for {} tensors; GPU activations are BF16 or F32", op, name_of(dtype));
}

unsigned blocks_for(const char* op, int64_t n, int64_t per_block) {
  const int64_t blocks = ceil_div(n, per_block);
  check(blocks <= INT_MAX, "{}: {} elements are too many for one kernel", op, n);
  return static_cast<unsigned>(blocks);
}

double traffic(std::initializer_list<const Tensor*> tensors) {
  double bytes = 0;
  for (const Tensor* t : tensors) {
    int64_t distinct = 1;
    for (int axis = 0; axis < t->rank(); ++axis)
      if (t->stride(axis) != 0) distinct *= t->dim(axis);
    bytes += static_cast<double>(distinct) * info(t->dtype()).block_bytes / info(t->dtype()).block_elements;
  }
  return bytes;
}

Tensor weight_vector(const Tensor& w, DType activations) {
  const bool readable = w.dtype() == activations || w.dtype() == DType::F32;
  return (readable ? w : w.cast(DType::F32)).contiguous();
}

}  // namespace flux2::cuda
