#include "weights/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr uint64_t kMaxKeys = 1'000'000;
constexpr uint64_t kMaxLength = uint64_t{1} << 30;  // of a string or an array
constexpr size_t kMaxName = 1024;
constexpr uint64_t kMaxNumber = (uint64_t{1} << 63) - 1;
constexpr const char* kDownloadAgain = "download the file again";

// Size of a scalar; 0 for strings and arrays.
size_t size_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::U8:
    case GgufValueType::I8:
    case GgufValueType::Bool: return 1;
    case GgufValueType::U16:
    case GgufValueType::I16: return 2;
    case GgufValueType::U32:
    case GgufValueType::I32:
    case GgufValueType::F32: return 4;
    case GgufValueType::U64:
    case GgufValueType::I64:
    case GgufValueType::F64: return 8;
    case GgufValueType::String:
    case GgufValueType::Array: return 0;
  }
  return 0;
}

const char* name_of(GgufValueType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

template <class T>
T number_at(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> file, uint64_t limit = UINT64_MAX) : file_(file), limit_(limit) {}

  template <class T>
  T number() {
    return number_at<T>(take(sizeof(T)).data());
  }

  std::span<const std::byte> take(uint64_t size) {
    if (size > file_.size() - at_)
      throw Error(ErrorCode::BadFile,
                  fmt::format("the file is incomplete: it ends inside its header, after {} bytes", file_.size()), kDownloadAgain);
    at_ += size;
    if (at_ > limit_) fail(ErrorCode::BadFile, "the header has more than {}, the limit", byte_text(limit_));
    return file_.subspan(at_ - size, size);
  }

  std::span<const std::byte> string() {
    const auto length = number<uint64_t>();
    if (length > kMaxLength)
      fail(ErrorCode::BadFile, "a text of {} bytes in the header is over the limit of {}", length, kMaxLength);
    return take(length);
  }

  GgufValueType value_type() {
    const auto type = number<uint32_t>();
    if (type > static_cast<uint32_t>(GgufValueType::F64)) fail(ErrorCode::BadFile, "unknown value type {} in the header", type);
    return static_cast<GgufValueType>(type);
  }

  GgufValue value() {
    GgufValue v{.type = value_type()};
    if (v.type == GgufValueType::String) v.bytes = string();
    else if (v.type == GgufValueType::Array) array(v);
    else v.bytes = take(size_of(v.type));
    return v;
  }

  uint64_t position() const { return at_; }

 private:
  void array(GgufValue& v) {
    v.element = value_type();
    v.count = number<uint64_t>();
    if (v.element == GgufValueType::Array) fail(ErrorCode::BadFile, "an array of arrays in the header");
    if (v.count > kMaxLength)
      fail(ErrorCode::BadFile, "an array of {} elements in the header is over the limit of {}", v.count, kMaxLength);
    const uint64_t start = at_;
    if (v.element == GgufValueType::String)
      for (uint64_t i = 0; i < v.count; ++i) string();
    else take(v.count * size_of(v.element));
    v.bytes = file_.subspan(start, at_ - start);
  }

  std::span<const std::byte> file_;
  uint64_t limit_, at_ = 0;
};

std::string as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

int64_t integer_at(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::U8:
    case GgufValueType::Bool: return number_at<uint8_t>(at);
    case GgufValueType::I8: return number_at<int8_t>(at);
    case GgufValueType::U16: return number_at<uint16_t>(at);
    case GgufValueType::I16: return number_at<int16_t>(at);
    case GgufValueType::U32: return number_at<uint32_t>(at);
    case GgufValueType::I32: return number_at<int32_t>(at);
    case GgufValueType::U64: return static_cast<int64_t>(std::min(number_at<uint64_t>(at), kMaxNumber));
    default: return number_at<int64_t>(at);
  }
}

bool is_whole(GgufValueType type) { return size_of(type) > 0 && type != GgufValueType::F32 && type != GgufValueType::F64; }

void check_version(uint32_t version) {
  if ((version & 0xffff) == 0 && version != 0) fail(ErrorCode::BadFile, "this GGUF file is big-endian, which is not supported");
  if (version == 2 || version == 3) return;
  throw Error(ErrorCode::BadFile, fmt::format("GGUF version {} is not supported; versions 2 and 3 are", version),
              "look for a newer file of the model");
}

GgufHeader::Entry read_entry(Reader& reader) {
  GgufHeader::Entry t;
  const auto name = reader.string();
  if (name.empty() || name.size() > kMaxName)
    fail(ErrorCode::BadFile, "a tensor name has {} bytes, 1 to {} are allowed", name.size(), kMaxName);
  t.name = as_text(name);
  const auto axes = reader.number<uint32_t>();
  if (axes > 4) fail(ErrorCode::BadFile, "tensor {} has {} axes, at most 4 are allowed", printable(t.name), axes);
  std::vector<int64_t> extents;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    const auto extent = reader.number<uint64_t>();
    if (extent == 0 || extent > kMaxNumber / elements)
      fail(ErrorCode::BadFile, "tensor {} has an axis of {} elements", printable(t.name), extent);
    elements *= extent;
    extents.push_back(static_cast<int64_t>(extent));
  }
  for (auto e = extents.rbegin(); e != extents.rend(); ++e) t.shape = t.shape.append(*e);
  t.type = reader.number<uint32_t>();
  t.offset = reader.number<uint64_t>();
  const GgmlType* type = ggml_type(t.type);
  if (!type || type->block_elements == 0) return t;
  const int64_t row = extents.empty() ? 1 : extents[0];
  if (row % type->block_elements != 0)
    fail(ErrorCode::BadFile, "tensor {} of shape {} does not fill blocks of {} as {} needs", printable(t.name), t.shape,
         type->block_elements, type->name);
  const uint64_t blocks = elements / static_cast<uint64_t>(type->block_elements);
  if (blocks > kMaxNumber / static_cast<uint64_t>(type->block_bytes))
    fail(ErrorCode::BadFile, "tensor {} of shape {} has too many bytes", printable(t.name), t.shape);
  t.size = blocks * static_cast<uint64_t>(type->block_bytes);
  return t;
}

uint64_t alignment_of(const GgufHeader& header) {
  const auto at = header.values.find(std::string(kGgufAlignmentKey));
  if (at == header.values.end()) return kGgufAlignment;
  const auto n = at->second.type == GgufValueType::U32 ? at->second.unsigned_number() : std::nullopt;
  if (!n || *n < 8 || (*n & (*n - 1)) != 0)
    fail(ErrorCode::BadFile, "{} is {}, not a power of two from 8", kGgufAlignmentKey, at->second.text());
  return *n;
}

void check_unique(const std::vector<GgufHeader::Entry>& tensors) {
  std::vector<std::string_view> names;
  for (const auto& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorCode::BadFile, "tensor {} appears twice in the header", printable(*twice));
}

// Every tensor inside the file and on no other's bytes; gaps and another order than the list's are odd but harmless.
void check_offsets(const GgufHeader& header, uint64_t alignment, uint64_t file_size, const Log& log) {
  std::vector<const GgufHeader::Entry*> order;
  uint64_t running = 0;
  bool usual = true;
  for (const auto& t : header.tensors) {
    if (t.offset % alignment != 0)
      fail(ErrorCode::BadFile, "tensor {} begins at byte {}, not at a multiple of {}", printable(t.name), t.offset, alignment);
    if (t.offset > kMaxNumber || header.data_start > file_size || t.offset > file_size - header.data_start ||
        t.size > file_size - header.data_start - t.offset)
      throw Error(ErrorCode::BadFile,
                  fmt::format("the file is incomplete: tensor {} ends at byte {}, the file has {}", printable(t.name),
                              header.data_start + t.offset + t.size, file_size),
                  kDownloadAgain);
    usual = usual && t.offset == running;
    running = t.offset + (t.size + alignment - 1) / alignment * alignment;
    order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->size)
      fail(ErrorCode::BadFile, "tensor {} begins inside tensor {}", printable(order[i]->name), printable(order[i - 1]->name));
  if (!usual) log.warn("the tensors are not stored in the order of the list");
}

// ComfyUI's converter stores what does not divide into blocks as rows of 256 and notes the shape it had. Rows must hold
// whole blocks to be opened, so only plain types and shapes that do can be given back.
Shape true_shape(const GgufHeader& header, const GgufHeader::Entry& t, const GgmlType* type) {
  const auto noted = header.values.find(std::string(kGgufShapePrefix) + t.name);
  if (noted == header.values.end()) return t.shape;
  Shape shape;
  int64_t left = t.shape.numel();  // divided down, so that extents from outside cannot overflow a product
  const bool few = noted->second.count <= Shape::kMaxRank;  // before they are copied
  const auto extents = few ? noted->second.integers() : std::vector<int64_t>();
  bool fits = !extents.empty();
  for (size_t i = 0; fits && i < extents.size(); ++i) {
    fits = extents[i] > 0 && left % extents[i] == 0;
    if (!fits) break;
    left /= extents[i];
    shape = shape.append(extents[i]);
  }
  if (!fits || left != 1)
    fail(ErrorCode::BadFile, "{}{} does not fit its shape {}", kGgufShapePrefix, printable(t.name), t.shape);
  if (type && type->block_elements > 1 && shape[-1] % type->block_elements != 0)
    fail(ErrorCode::Incompatible, "tensor {} of shape {} is stored in blocks that run across its rows", printable(t.name), shape);
  return shape;
}

}  // namespace

std::string GgufValue::text() const {
  switch (type) {
    case GgufValueType::String: return as_text(bytes);
    case GgufValueType::Array: return fmt::format("{} × {}", name_of(element), count);
    case GgufValueType::Bool: return number_at<uint8_t>(bytes.data()) ? "true" : "false";
    case GgufValueType::F32: return fmt::format("{}", number_at<float>(bytes.data()));
    case GgufValueType::F64: return fmt::format("{}", number_at<double>(bytes.data()));
    case GgufValueType::U64: return fmt::format("{}", number_at<uint64_t>(bytes.data()));
    default: return fmt::format("{}", integer_at(type, bytes.data()));
  }
}

std::optional<uint64_t> GgufValue::unsigned_number() const {
  if (!is_whole(type)) return std::nullopt;
  const int64_t n = integer_at(type, bytes.data());
  return n < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(n));
}

std::vector<int64_t> GgufValue::integers() const {
  std::vector<int64_t> values;
  if (type != GgufValueType::Array || !is_whole(element)) return values;
  for (size_t at = 0; at < bytes.size(); at += size_of(element)) values.push_back(integer_at(element, bytes.data() + at));
  return values;
}

std::vector<std::string> GgufValue::strings() const {
  std::vector<std::string> values;
  if (type != GgufValueType::Array || element != GgufValueType::String) return values;
  Reader reader(bytes);
  for (uint64_t i = 0; i < count; ++i) values.push_back(as_text(reader.string()));
  return values;
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, const Log& log, const WeightLimits& limits) {
  Reader reader(file, limits.gguf_header_bytes);
  if (as_text(reader.take(kGgufMagic.size())) != kGgufMagic)
    fail(ErrorCode::BadFile, "not a GGUF file: it does not begin with GGUF");
  GgufHeader header{.version = reader.number<uint32_t>()};
  check_version(header.version);
  const auto tensors = reader.number<uint64_t>(), keys = reader.number<uint64_t>();
  if (tensors > limits.tensors || keys > kMaxKeys)
    fail(ErrorCode::BadFile, "a header of {} tensors and {} values is over the limits of {} and {}", tensors, keys,
         limits.tensors, kMaxKeys);
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key = as_text(reader.string());
    if (key.empty()) fail(ErrorCode::BadFile, "a value of the header has no name");
    GgufValue value = reader.value();
    if (!header.values.emplace(key, value).second) fail(ErrorCode::BadFile, "the header names {} twice", printable(key));
  }
  for (uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_entry(reader));
  check_unique(header.tensors);
  const uint64_t alignment = alignment_of(header);
  header.data_start = (reader.position() + alignment - 1) / alignment * alignment;
  check_offsets(header, alignment, file.size(), log);
  return header;
}

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
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;  // a pipe would have to be waited for
  std::string head(kGgufMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return file && head == kGgufMagic;
}

}  // namespace flux2
