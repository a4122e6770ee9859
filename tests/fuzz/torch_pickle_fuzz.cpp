#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "tests/fuzz/target.h"
#include "weights/torch_pickle.h"

// Any bytes are either refused with an Error or describe tensors whose values lie within those bytes.
FUZZ_TARGET(torch_pickle) {
  unsigned sum = 0;
  for (const flux2::PickledTensor& tensor : flux2::read_torch_pickle(std::as_bytes(std::span(data, size)))) {
    const flux2::Tensor opened = tensor.open();
    for (int64_t i = 0; i < opened.bytes(); ++i) sum += std::to_integer<unsigned>(opened.data<std::byte>()[i]);
  }
  volatile unsigned keep = sum;
  (void)keep;
}
