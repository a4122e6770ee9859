#include "weights/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "weights/safetensors_header.h"

namespace flux2 {

namespace {

// The order in which the reference writer lays types out, so that both make the same file of the same tensors.
constexpr std::array kTypeOrder = {DType::U64,     DType::I64, DType::F64, DType::F32, DType::U32,     DType::I32,
                                   DType::BF16,    DType::F16, DType::U16, DType::I16, DType::F8_E8M0, DType::F8_E4M3,
                                   DType::F8_E5M2, DType::I8,  DType::U8,  DType::Bool};

size_t type_order(const SafetensorsWriter::Declared& t) {
  const auto at = std::find(kTypeOrder.begin(), kTypeOrder.end(), t.dtype);
  check(at != kTypeOrder.end(), "tensor {}: safetensors files cannot hold {}", t.name, name_of(t.dtype));
  return static_cast<size_t>(at - kTypeOrder.begin());
}

uint64_t bytes_of(const SafetensorsWriter::Declared& t) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t bytes = info(t.dtype).block_bytes;
  for (int64_t extent : t.shape) {
    require(extent >= 0 && (extent == 0 || bytes <= kMost / extent), "tensor {} cannot have the shape {}", t.name, t.shape);
    bytes *= extent;
  }
  return static_cast<uint64_t>(bytes);
}

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail(ErrorCode::InvalidArgument, "a tensor name or metadata text is not valid UTF-8");
  }
}

}  // namespace

std::vector<SafetensorsWriter::Declared> safetensors_order(std::vector<SafetensorsWriter::Declared> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const size_t x = type_order(a), y = type_order(b);
    return x != y ? x < y : a.name < b.name;
  });
  std::vector<std::string_view> names;
  for (const auto& t : tensors) {
    type_order(t);  // one tensor alone is never compared
    check(t.name != "__metadata__", "a tensor cannot be named __metadata__");
    names.push_back(t.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "tensor {} is to be written twice", twice == names.end() ? "" : *twice);
  return tensors;
}

std::string safetensors_header(const std::vector<SafetensorsWriter::Declared>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&] { text += text.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += quoted(key) + ":" + quoted(value) + ",";
    text.back() = '}';
  }
  uint64_t offset = 0;
  for (const auto& t : tensors) {
    separate();
    const uint64_t end = offset + bytes_of(t);
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(t.name), name_of(t.dtype),
                        fmt::join(t.shape.begin(), t.shape.end(), ","), offset, end);
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= kMaxSafetensorsHeader, "a header of {} bytes is over the limit of {}", text.size(), kMaxSafetensorsHeader);
  std::string length;
  for (size_t i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Declared> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(safetensors_order(std::move(tensors))), file_(path) {
  const std::string header = safetensors_header(tensors_, metadata);
  file_.write(header.data(), header.size());
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < tensors_.size() && written_ == bytes_of(tensors_[current_])) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  require(current_ < tensors_.size(), "tensor {} is written after the last one", name);
  const Declared& t = tensors_[current_];
  require(name == t.name, "tensor {} is written where {} is due", name, t.name);
  require(bytes.size() <= bytes_of(t) - written_, "tensor {} gets more than its {} bytes", name, bytes_of(t));
  file_.write(bytes);
  written_ += bytes.size();
  skip_complete();
}

void SafetensorsWriter::require_complete() const {
  if (current_ < tensors_.size())
    fail(ErrorCode::Internal, "tensor {} has {} of its {} bytes", tensors_[current_].name, written_,
         bytes_of(tensors_[current_]));
}

void SafetensorsWriter::commit() {
  require_complete();
  file_.commit();
}

bool SafetensorsWriter::commit_new() {
  require_complete();
  return file_.commit_new();
}

namespace {

void write_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                   const std::map<std::string, std::string>& metadata, const std::function<void(SafetensorsWriter&)>& commit) {
  std::vector<SafetensorsWriter::Declared> declared;
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined(), "tensor {} to be saved has no values", name);
    declared.push_back({name, tensor.dtype(), tensor.shape()});
    by_name[name] = &tensor;
  }
  SafetensorsWriter writer(path, std::move(declared), metadata);
  std::vector<std::byte> host;
  for (const auto& t : writer.tensors()) {
    const Tensor values = by_name.at(t.name)->contiguous();
    const auto size = static_cast<size_t>(values.bytes());
    if (values.on_host_only()) {
      writer.write(t.name, {values.data<const std::byte>(), size});
      continue;
    }
    host.resize(size);
    values.stream().download(host.data(), values.raw(), size);
    writer.write(t.name, host);
  }
  commit(writer);
}

}  // namespace

void save_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  write_tensors(path, tensors, metadata, [](SafetensorsWriter& writer) { writer.commit(); });
}

bool save_new_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  bool saved = false;
  write_tensors(path, tensors, metadata, [&](SafetensorsWriter& writer) { saved = writer.commit_new(); });
  return saved;
}

}  // namespace flux2
