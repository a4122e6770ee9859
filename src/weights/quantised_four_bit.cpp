#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "weights/packed_kinds.h"
#include "weights/read_values.h"

namespace flux2 {

namespace {

float float_at(const StoredTensor& t, int64_t i) {
  float v;
  std::memcpy(&v, t.bytes.data() + i * static_cast<int64_t>(sizeof v), sizeof v);
  return v;
}

int64_t number_in(const Json& state, const char* key, int64_t otherwise) {
  const auto at = state.find(key);
  if (at == state.end() || at->is_null()) return otherwise;
  if (!at->is_number_integer() || at->get<int64_t>() <= 0 || at->get<int64_t>() > (int64_t{1} << 31))
    fail(ErrorCode::BadFile, "{} of a quant_state is not a whole number above 0", key);
  return at->get<int64_t>();
}

class BnbValues final : public PackedValues {
 public:
  explicit BnbValues(const BnbParts& parts) : parts_(parts), columns_(bnb_shape(parts)[-1]) {
    const int64_t count = bnb_shape(parts).numel();
    block_ = number_in(parts.state, "blocksize", 64);
    nested_block_ = number_in(parts.state, "nested_blocksize", 256);
    const int64_t blocks = (count + block_ - 1) / block_;
    const auto expect = [&](const StoredTensor& t, DType dtype, int64_t elements) {
      if (t.dtype != dtype || t.shape.numel() != elements)
        fail(ErrorCode::BadFile, "{} is {} {}, expected {} elements of {}", t.name, t.dtype_name, t.shape, elements,
             name_of(dtype));
    };
    nested_ = parts_.absmax.dtype == DType::U8;
    expect(parts_.absmax, nested_ ? DType::U8 : DType::F32, blocks);
    expect(parts_.map, DType::F32, 16);
    if (parts_.codes.bytes.size() != static_cast<size_t>((count + 1) / 2))
      fail(ErrorCode::BadFile, "{} has {} bytes for {} codes", parts_.codes.name, parts_.codes.bytes.size(), count);
    if (!nested_) return;
    if (!parts_.nested_absmax || !parts_.nested_map)
      fail(ErrorCode::BadFile, "{} is nested, its tables are missing", parts_.absmax.name);
    nested_absmax_ = *parts_.nested_absmax, nested_map_ = *parts_.nested_map;
    expect(nested_absmax_, DType::F32, (blocks + nested_block_ - 1) / nested_block_);
    expect(nested_map_, DType::F32, 256);
    const auto offset = parts_.state.find("nested_offset");
    if (offset == parts_.state.end() || !offset->is_number())
      fail(ErrorCode::BadFile, "the quant_state of {} has no nested_offset", parts_.codes.name);
    offset_ = offset->get<float>();
  }

  void rows(int64_t begin, int64_t end, float* out) const override {
    std::array<float, 16> map;
    read_values(DType::F32, parts_.map.bytes.data(), 16, map.data());
    const auto* codes = reinterpret_cast<const uint8_t*>(parts_.codes.bytes.data());
    for (int64_t p = begin * columns_; p < end * columns_;) {
      const int64_t last = std::min(end * columns_, (p / block_ + 1) * block_);
      const float largest = absmax(p / block_);
      for (; p < last; ++p) *out++ = map[p % 2 == 0 ? codes[p / 2] >> 4 : codes[p / 2] & 15] * largest;
    }
  }

 private:
  float absmax(int64_t block) const {
    if (!nested_) return float_at(parts_.absmax, block);
    const auto code = std::to_integer<uint8_t>(parts_.absmax.bytes[static_cast<size_t>(block)]);
    return float_at(nested_map_, code) * float_at(nested_absmax_, block / nested_block_) + offset_;
  }

  BnbParts parts_;
  StoredTensor nested_absmax_, nested_map_;
  int64_t columns_, block_ = 64, nested_block_ = 256;
  bool nested_ = false;
  float offset_ = 0;
};

}  // namespace

Shape bnb_shape(const BnbParts& parts) {
  const auto extents = parts.state.find("shape");
  Shape shape;
  if (extents != parts.state.end() && extents->is_array() && extents->size() == 2)
    for (const Json& e : *extents)
      if (e.is_number_integer() && e.get<int64_t>() > 0 && e.get<int64_t>() < (int64_t{1} << 31))
        shape = shape.append(e.get<int64_t>());
  if (shape.rank() != 2) fail(ErrorCode::BadFile, "the quant_state of {} does not tell the shape of a matrix", parts.codes.name);
  return shape;
}

std::shared_ptr<const PackedValues> bnb_values(const BnbParts& parts) { return std::make_shared<BnbValues>(parts); }

}  // namespace flux2
