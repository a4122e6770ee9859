#include "weights/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json_walk.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxTensors = WeightLimits{}.tensors;
constexpr size_t kMaxMetadata = 1'000'000;
constexpr size_t kMaxName = 4096;
constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();

using Entry = SafetensorsHeader::Entry;

// Bits of one element, for every type the format defines, including those we do not compute with.
std::optional<uint64_t> bits_of(std::string_view dtype) {
  struct Known {
    std::string_view name;
    uint64_t bits;
  };
  static constexpr Known kKnown[] = {
      {"BF16", 16}, {"F32", 32}, {"F16", 16},    {"F8_E4M3", 8}, {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"U8", 8},   {"I8", 8},
      {"BOOL", 8},  {"I16", 16}, {"U16", 16},    {"I32", 32},    {"U32", 32},        {"I64", 64},        {"U64", 64}, {"F64", 64},
      {"C64", 64},  {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
  };
  for (const Known& k : kKnown)
    if (k.name == dtype) return k.bits;
  return std::nullopt;
}

// Builds the header from the events of its text: { name: { dtype, shape, data_offsets }, …, __metadata__: { … } }.
class Builder : public JsonHandler {
 public:
  void key(std::string& name, int depth) override {
    if (depth == 1) begin_member(name);
    else if (depth == 2) begin_field(name);
  }

  void scalar(const Scalar& value, int depth) override {
    if (depth == 0) fail(ErrorCode::BadFile, "the header is not a JSON object");
    if (in_metadata_) metadata_value(value, depth);
    else if (depth == 1) not_an_object();
    else if (field_ == Field::Dtype && depth == 2 && value.kind == Kind::String) current().dtype = std::move(*value.text);
    else if (field_ != Field::Dtype && depth == 3) number(value);
    else wrong_type();
  }

  void open(bool is_object, int depth) override {
    if (in_metadata_) {
      open_metadata(is_object, depth);
    } else if (depth == 0) {
      if (!is_object) fail(ErrorCode::BadFile, "the header is not a JSON object");
    } else if (depth == 1) {
      if (!is_object) not_an_object();
    } else if (is_object || field_ == Field::Dtype || depth > 2) {
      wrong_type();
    }
  }

  void close(int depth) override {
    if (depth == 1) end_member();
    if (depth == 2 && !in_metadata_) end_array();
  }

  SafetensorsHeader take(const Log& log) {
    if (skipped_metadata_ > 0)
      log.warn("left out {} metadata value(s) that are not text, the first under \"{}\"", skipped_metadata_,
               printable(first_skipped_));
    return std::move(header_);
  }

 private:
  enum class Field { Dtype, Shape, Offsets };

  Entry& current() { return header_.tensors.back(); }

  void begin_member(std::string& name) {
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) {
      if (seen_metadata_) fail(ErrorCode::BadFile, "__metadata__ appears twice in the header");
      seen_metadata_ = true;
      key_.clear();
      return;
    }
    if (name.size() > kMaxName)
      fail(ErrorCode::BadFile, "a tensor name has {} bytes, the limit is {}: {}", name.size(), kMaxName, printable(name));
    if (header_.tensors.size() == kMaxTensors) fail(ErrorCode::BadFile, "more than {} tensors", kMaxTensors);
    header_.tensors.push_back({.name = std::move(name)});
    has_[0] = has_[1] = has_[2] = false;
  }

  void begin_field(std::string& name) {
    if (in_metadata_) {
      key_ = std::move(name);
      return;
    }
    if (name == "dtype") field_ = Field::Dtype;
    else if (name == "shape") field_ = Field::Shape;
    else if (name == "data_offsets") field_ = Field::Offsets;
    else fail(ErrorCode::BadFile, "tensor {} has an unknown member \"{}\"", printable(current().name), printable(name));
    bool& has = has_[static_cast<size_t>(field_)];
    if (has) fail(ErrorCode::BadFile, "tensor {} has the member \"{}\" twice", printable(current().name), name);
    has = true;
    offsets_ = 0;
  }

  void end_member() {
    if (in_metadata_) {
      in_metadata_ = false;
      return;
    }
    static constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};
    for (size_t i = 0; i < 3; ++i)
      if (!has_[i]) fail(ErrorCode::BadFile, "tensor {} has no \"{}\"", printable(current().name), kFields[i]);
  }

  void end_array() {
    if (field_ == Field::Offsets && offsets_ != 2)
      fail(ErrorCode::BadFile, "data_offsets of tensor {} has {} numbers, not 2", printable(current().name), offsets_);
  }

  void number(const Scalar& value) {
    if (value.kind != Kind::Unsigned || value.number > kMaxNumber) wrong_type();
    if (field_ == Field::Shape) {
      if (current().shape.rank() == Shape::kMaxRank)
        fail(ErrorCode::BadFile, "tensor {} has more than {} axes", printable(current().name), Shape::kMaxRank);
      current().shape = current().shape.append(static_cast<int64_t>(value.number));
    } else {
      if (++offsets_ > 2)
        fail(ErrorCode::BadFile, "data_offsets of tensor {} has more than 2 numbers", printable(current().name));
      (offsets_ == 1 ? current().begin : current().end) = value.number;
    }
  }

  // Everything under __metadata__: text is kept, null in its place is as good as nothing, the rest is left out.
  void metadata_value(const Scalar& value, int depth) {
    if (depth == 1 && value.kind != Kind::Null) skip_metadata();
    if (depth != 2 || !metadata_is_object_) return;
    if (value.kind != Kind::String) return skip_metadata();
    if (header_.metadata.size() == kMaxMetadata) fail(ErrorCode::BadFile, "more than {} metadata entries", kMaxMetadata);
    if (!header_.metadata.emplace(key_, std::move(*value.text)).second)
      fail(ErrorCode::BadFile, "metadata key \"{}\" appears twice", printable(key_));
  }

  void open_metadata(bool is_object, int depth) {
    if (depth == 1) metadata_is_object_ = is_object;
    if (depth == 1 ? !is_object : depth == 2 && metadata_is_object_) skip_metadata();
  }

  void skip_metadata() {
    if (skipped_metadata_++ == 0) first_skipped_ = key_.empty() ? "__metadata__" : key_;
  }

  [[noreturn]] void not_an_object() {
    fail(ErrorCode::BadFile, "the header entry of tensor {} is not an object", printable(current().name));
  }
  [[noreturn]] void wrong_type() {
    if (field_ == Field::Dtype) fail(ErrorCode::BadFile, "dtype of tensor {} is not text", printable(current().name));
    fail(ErrorCode::BadFile, "{} of tensor {} is not an array of whole numbers from 0 to 2^63-1",
         field_ == Field::Shape ? "shape" : "data_offsets", printable(current().name));
  }

  SafetensorsHeader header_;
  Field field_ = Field::Dtype;
  bool has_[3] = {};
  int offsets_ = 0;
  bool in_metadata_ = false, seen_metadata_ = false, metadata_is_object_ = false;
  std::string key_;
  size_t skipped_metadata_ = 0;
  std::string first_skipped_;
};

// The product of the extents. Extents of zero are passed over, so that it bounds the strides of empty tensors as well.
uint64_t largest_stride(const Entry& t) {
  uint64_t product = 1;
  for (int64_t extent : t.shape) {
    if (extent == 0) continue;
    if (product > kMaxNumber / static_cast<uint64_t>(extent))
      fail(ErrorCode::BadFile, "tensor {} of shape {} has too many elements", printable(t.name), t.shape);
    product *= static_cast<uint64_t>(extent);
  }
  return product;
}

void check_size(const Entry& t) {
  if (t.begin > t.end)
    fail(ErrorCode::BadFile, "tensor {} ends at byte {} before it begins at {}", printable(t.name), t.end, t.begin);
  const uint64_t stride = largest_stride(t);
  const auto bits = bits_of(t.dtype);
  if (!bits) return;  // an unknown type: reported only when the tensor is opened
  if (stride > kMaxNumber / *bits)
    fail(ErrorCode::BadFile, "tensor {} of shape {} has too many bytes", printable(t.name), t.shape);
  const bool is_empty = std::find(t.shape.begin(), t.shape.end(), 0) != t.shape.end();
  const uint64_t count = is_empty ? 0 : stride;
  if (count * *bits % 8 != 0)
    fail(ErrorCode::BadFile, "tensor {} of {} elements of {} does not fill whole bytes", printable(t.name), count, t.dtype);
  if (const uint64_t bytes = count * *bits / 8; t.end - t.begin != bytes)
    fail(ErrorCode::BadFile, "tensor {} of shape {} and type {} needs {} bytes, its data_offsets hold {}", printable(t.name),
         t.shape, t.dtype, bytes, t.end - t.begin);
}

void check_unique(const std::vector<Entry>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (const auto& name = tensors[order[i]].name; name == tensors[order[i - 1]].name)
      fail(ErrorCode::BadFile, "tensor {} appears twice in the header", printable(name));
}

void check_layout(const std::vector<Entry>& tensors) {
  uint64_t expected = 0;
  for (const Entry& t : tensors) {
    if (t.begin > expected)
      fail(ErrorCode::BadFile, "{} bytes before tensor {} belong to no tensor", t.begin - expected, printable(t.name));
    if (t.begin < expected)
      fail(ErrorCode::BadFile, "tensor {} begins at byte {}, inside the tensor before it, which ends at {}", printable(t.name),
           t.begin, expected);
    expected = t.end;
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, const Log& log) {
  // Only spaces may pad the end: anything else there would be data taken for header.
  const size_t last = json.find_last_not_of(' ');
  if (last == std::string_view::npos || json[last] != '}') fail(ErrorCode::BadFile, "the header does not end with }} and spaces");
  Builder builder;
  in_context("header", [&] { walk_json(json.substr(0, last + 1), builder, kMaxDepth); });
  SafetensorsHeader header = builder.take(log);

  for (const Entry& t : header.tensors) check_size(t);
  check_unique(header.tensors);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const Entry& a, const Entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  check_layout(header.tensors);
  return header;
}

}  // namespace flux2
