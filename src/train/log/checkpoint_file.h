#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "train/log/run_facts.h"

namespace flux2 {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// "float" and "fp32", "fp16", "bf16". Throws InvalidArgument for anything else.
DType save_precision_named(std::string_view name);

struct CheckpointFormat {
  std::optional<DType> precision = DType::F32;  // F32, F16 or BF16 for every tensor; empty: each keeps its own
  MetadataKind metadata = MetadataKind::Full;
  std::map<std::string, std::string> more;  // entries that the model needs, whatever `metadata` is
};

struct WrittenCheckpoint {
  std::filesystem::path file;
  uint64_t bytes = 0;
  std::string sha256;                   // of the whole file
  std::string model_hash, legacy_hash;  // sshs_model_hash, sshs_legacy_hash; empty for a full model
};

// Writes an adapter, or with facts.network empty a full model, as one safetensors file. Tensors may be on any device. The file
// appears under its name when it is complete. Throws CannotWrite before it writes anything if the disk has too little space.
WrittenCheckpoint write_checkpoint(const std::filesystem::path& file, const NamedTensors& tensors, const RunFacts& facts,
                                   const CheckpointFormat& options = {});

}  // namespace flux2
