#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "tests/fuzz/target.h"
#include "weights/weight_index.h"

// Any text is either refused with an Error or an index whose files lie beside it and which names every tensor once.
FUZZ_TARGET(index) {
  try {
    const flux2::WeightIndex index = flux2::parse_weight_index({reinterpret_cast<const char*>(data), size});
    for (const auto& [file, tensors] : index.tensors_of_file) {
      const std::filesystem::path inside = (std::filesystem::path("folder") / file).lexically_normal();
      if (*inside.begin() != "folder" || tensors.empty()) std::abort();
    }
  } catch (const flux2::Error&) {}
}
