#include "nn/parameter.h"

#include <array>

namespace flux2 {

Tensor conv_from_file(const Tensor& stored, Stream& stream) {
  constexpr std::array<int, 4> order{0, 2, 3, 1};
  const Tensor t = stored.to(stream);  // blocks lie along an axis that is not the last one of the result
  return (is_block_type(t.dtype()) ? t.cast(DType::BF16) : t).permuted(order).contiguous();
}

}  // namespace flux2
