#include "weights/gguf_file.h"

#include <fstream>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

// ComfyUI's converter stores what does not divide into blocks as rows of 256 and notes the shape it had. Rows must hold
// whole blocks to be opened, so only plain types and shapes that do can be given back.
Shape true_shape(const GgufHeader& header, const GgufHeader::Entry& t, const GgmlType* type) {
  const auto noted = header.values.find(std::string(kGgufShapePrefix) + t.name);
  if (noted == header.values.end()) return t.shape;
  Shape shape;
  int64_t left = t.shape.numel();  // divided down, so that extents from outside cannot overflow a product
  const auto extents = noted->second.integers();
  bool fits = !extents.empty() && extents.size() <= Shape::kMaxRank;
  for (size_t i = 0; fits && i < extents.size(); ++i) {
    fits = extents[i] > 0 && left % extents[i] == 0;
    if (!fits) break;
    left /= extents[i];
    shape = shape.append(extents[i]);
  }
  if (!fits || left != 1) fail(ErrorCode::BadFile, "{}{} does not fit its shape {}", kGgufShapePrefix, printable(t.name), t.shape);
  if (type && type->block_elements > 1 && shape[-1] % type->block_elements != 0)
    fail(ErrorCode::Incompatible, "tensor {} of shape {} is stored in blocks that run across its rows", printable(t.name), shape);
  return shape;
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path, const Log& log) : file_(MappedFile::open(path)) {
  in_context(path.string(), [&] { read(file_->bytes(), log); });
}

GgufFile::GgufFile(std::span<const std::byte> bytes, const Log& log) { read(bytes, log); }

void GgufFile::read(std::span<const std::byte> bytes, const Log& log) {
  header_ = parse_gguf_header(bytes, log);
  tensors_.reserve(header_.tensors.size());
  for (const auto& t : header_.tensors) {
    const GgmlType* type = ggml_type(t.type);
    const std::string name = type ? type->name : fmt::format("type {}", t.type);
    tensors_.push_back({t.name, name, type ? type->dtype : std::nullopt, true_shape(header_, t, type),
                        bytes.subspan(header_.data_start + t.offset, t.size), file_});
  }
}

std::map<std::string, std::string> GgufFile::metadata() const {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : header_.values)
    if (value.type != GgufValueType::Array) texts[key] = value.text();
  return texts;
}

bool is_gguf(const std::filesystem::path& path) {
  std::string head(kGgufMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return file && head == kGgufMagic;
}

}  // namespace flux2
