#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tests/fuzz/header_mutator.h"
#include "tests/fuzz/target.h"
#include "weights/gguf_file.h"
#include "weights/open_tensor.h"

// Any bytes are either refused with an Error or describe values and tensors that can be read within those bytes.
FUZZ_TARGET(gguf) {
  try {
    const flux2::GgufFile file(std::as_bytes(std::span(data, size)));
    size_t sum = file.metadata().size();
    for (const auto& [key, value] : file.header().values)
      sum += value.text().size() + value.integers().size() + value.strings().size();
    for (const flux2::StoredTensor& t : file.tensors()) {
      for (std::byte b : t.bytes) sum += std::to_integer<unsigned>(b);
      if (!t.dtype) continue;
      const flux2::Tensor opened = flux2::open_tensor(t);
      if (!flux2::is_block_type(*t.dtype)) continue;
      std::vector<float> values(static_cast<size_t>(opened.numel()));
      flux2::decode_blocks(*t.dtype, opened.raw(), opened.numel(), values.data());
      sum += values.size();
    }
    volatile size_t keep = sum;
    (void)keep;
  } catch (const flux2::Error&) {}
}

FUZZ_MUTATOR(mutate_gguf(data, size, seed))
