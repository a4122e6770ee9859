#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "model/adapters.h"
#include "tests/fuzz/header_mutator.h"
#include "tests/fuzz/target.h"
#include "weights/quantised_values.h"
#include "weights/safetensors_file.h"

// Any bytes are refused with an Error or are an adapter whose changes can be computed.
FUZZ_TARGET(adapter) {
  static const flux2::Flux2Config config{.hidden = 128, .double_blocks = 1, .single_blocks = 1, .text_width = 192};
  try {
    flux2::SafetensorsFile file(std::as_bytes(std::span(data, size)));
    const auto metadata = file.metadata();
    std::vector<flux2::StoredTensor> tensors = std::move(file).take_tensors();
    flux2::attach_quantised_values(tensors, metadata);
    const flux2::Adapter adapter(flux2::read_adapter(std::make_shared<flux2::WeightSource>(std::move(tensors), metadata, "fuzz")),
                                 config);
    for (const auto& c : adapter.changes()) {
      flux2::HostMatrix sum(c.target.rows.size(), c.target.in);
      const auto zeros = [&](int64_t, float* row) { std::fill_n(row, c.target.in, 0.0f); };
      flux2::AdapterChange change(c.module);
      change.look_at(zeros);
      change.add_rows(0, sum.rows, zeros, sum.columns, 1.0f, sum.values.data());
    }
  } catch (const flux2::Error&) {}
}

FUZZ_MUTATOR(mutate_safetensors(data, size, max_size, seed))
