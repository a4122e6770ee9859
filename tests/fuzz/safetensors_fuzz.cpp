#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "tests/fuzz/header_mutator.h"
#include "tests/fuzz/target.h"
#include "weights/open_tensor.h"
#include "weights/safetensors_file.h"

// Any bytes are either refused with an Error or describe tensors that can be walked and opened within those bytes.
FUZZ_TARGET(safetensors) {
  try {
    const flux2::SafetensorsFile file(std::as_bytes(std::span(data, size)));
    unsigned sum = 0;
    for (const flux2::StoredTensor& t : file.tensors()) {
      for (std::byte b : t.bytes) sum += std::to_integer<unsigned>(b);
      if (!t.dtype) continue;
      const flux2::Tensor opened = flux2::open_tensor(t);
      for (int64_t i = 0; i < opened.bytes(); ++i) sum += std::to_integer<unsigned>(opened.data<std::byte>()[i]);
    }
    volatile unsigned keep = sum;
    (void)keep;
  } catch (const flux2::Error&) {}
}

FUZZ_MUTATOR(mutate_safetensors(data, size, max_size, seed))
