#include "train/log/checkpoint_file.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "train/log/free_space.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

using Declared = SafetensorsWriter::Declared;

DType stored_type(const Tensor& tensor, const CheckpointFormat& options) {
  return options.precision && is_float(tensor.dtype()) ? *options.precision : tensor.dtype();
}

// Gives the values of tensors as the file holds them, one at a time.
class StoredBytes {
 public:
  StoredBytes(const NamedTensors& tensors, const CheckpointFormat& options) : options_(options) {
    for (const auto& [name, tensor] : tensors) {
      require(tensor.defined(), "tensor {} to be saved has no values", name);
      by_name_[name] = &tensor;
    }
  }

  // Valid until the next call.
  std::span<const std::byte> operator()(const std::string& name) {
    const Tensor& tensor = *by_name_.at(name);
    const DType type = stored_type(tensor, options_);
    if (type != tensor.dtype()) return converted(tensor, type);
    held_ = tensor.contiguous();
    const auto size = static_cast<size_t>(held_.bytes());
    if (held_.on_host_only()) return {held_.data<const std::byte>(), size};
    bytes_.resize(size);
    held_.stream().download(bytes_.data(), held_.raw(), size);
    return bytes_;
  }

 private:
  template <class T, class Round>
  std::span<const std::byte> rounded(const std::vector<float>& values, Round round) {
    bytes_.resize(values.size() * sizeof(T));
    std::transform(values.begin(), values.end(), reinterpret_cast<T*>(bytes_.data()), round);
    return bytes_;
  }

  std::span<const std::byte> converted(const Tensor& tensor, DType type) {
    const std::vector<float> values = tensor.to_floats();
    if (type == DType::BF16) return rounded<bf16>(values, to_bf16);
    if (type == DType::F16) return rounded<f16>(values, [](float v) { return to_f16(v); });
    require(type == DType::F32, "checkpoints are not saved as {}", name_of(type));
    return rounded<float>(values, [](float v) { return v; });
  }

  const CheckpointFormat& options_;
  std::map<std::string, const Tensor*, std::less<>> by_name_;
  std::vector<std::byte> bytes_;
  Tensor held_;
};

// The part of [offset, offset + bytes) that lies in [begin, end).
std::span<const std::byte> overlap(std::span<const std::byte> bytes, uint64_t offset, uint64_t begin, uint64_t end) {
  const uint64_t from = std::max(begin, offset), to = std::min<uint64_t>(end, offset + bytes.size());
  return from < to ? bytes.subspan(static_cast<size_t>(from - offset), static_cast<size_t>(to - from))
                   : std::span<const std::byte>();
}

// The hashes by which other programs know an adapter, whatever its model spec says: both are taken of a file whose metadata has
// only the ss_ keys. The older one covers 64 KiB at 1 MiB, and so depends on the length of that header.
void add_model_hashes(const std::vector<Declared>& ordered, StoredBytes& values, std::map<std::string, std::string>& metadata,
                      WrittenCheckpoint& written) {
  constexpr uint64_t kBegin = 0x100000, kEnd = kBegin + 0x10000;
  std::map<std::string, std::string> training;
  for (const auto& [key, value] : metadata)
    if (key.starts_with("ss_")) training[key] = value;
  const std::string header = safetensors_header(ordered, training);
  Sha256 model, legacy;
  legacy.add(overlap(std::as_bytes(std::span(header)), 0, kBegin, kEnd));
  uint64_t offset = header.size();
  for (const Declared& t : ordered) {
    const auto bytes = values(t.name);
    model.add(bytes);
    legacy.add(overlap(bytes, offset, kBegin, kEnd));
    offset += bytes.size();
  }
  written.model_hash = metadata["sshs_model_hash"] = model.hex();
  written.legacy_hash = metadata["sshs_legacy_hash"] = legacy.hex().substr(0, 8);
}

uint64_t data_size(const std::vector<Declared>& tensors) {
  uint64_t bytes = 0;
  for (const Declared& t : tensors) bytes += static_cast<uint64_t>(bytes_for(t.dtype, t.shape.numel()));
  return bytes;
}

}  // namespace

DType save_precision_named(std::string_view name) {
  if (name == "float" || name == "fp32") return DType::F32;
  if (name == "fp16") return DType::F16;
  if (name == "bf16") return DType::BF16;
  throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" is not a precision for saving", printable(name)),
              Hint("use {0}, {1} or {2}", {set_option("save_precision", "fp32"), set_option("save_precision", "bf16"),
                                           set_option("save_precision", "fp16")}));
}

WrittenCheckpoint write_checkpoint(const std::filesystem::path& file, const NamedTensors& tensors, const RunFacts& facts,
                                   const CheckpointFormat& options) {
  check(!tensors.empty(), "a checkpoint needs at least one tensor");
  std::vector<Declared> declared;
  for (const auto& [name, tensor] : tensors) declared.push_back({name, stored_type(tensor, options), tensor.shape()});
  declared = safetensors_order(std::move(declared));
  constexpr uint64_t kHeaderRoom = 1 << 20;
  check_free_space(file.parent_path(), data_size(declared) + kHeaderRoom, "the checkpoint");

  WrittenCheckpoint written;
  written.file = file;
  StoredBytes values(tensors, options);
  auto metadata = metadata_of(facts, options.metadata);
  metadata.insert(options.more.begin(), options.more.end());
  if (facts.network) add_model_hashes(declared, values, metadata, written);

  const std::string header = safetensors_header(declared, metadata);
  Sha256 whole;
  whole.add(std::as_bytes(std::span(header)));
  written.bytes = header.size();
  SafetensorsWriter writer(file, declared, metadata);
  for (const Declared& t : writer.tensors()) {
    const auto bytes = values(t.name);
    writer.write(t.name, bytes);
    whole.add(bytes);
    written.bytes += bytes.size();
  }
  writer.commit();
  written.sha256 = whole.hex();
  return written;
}

}  // namespace flux2
