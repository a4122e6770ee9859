#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "weights/quantised_kinds.h"
#include "weights/read_values.h"
#include "weights/round_values.h"

namespace flux2 {

namespace {

int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Nvfp4Values final : public QuantisedValues {
 public:
  Nvfp4Values(const Nvfp4Parts& parts, Nvfp4Order order) : parts_(parts), tiled_(order == Nvfp4Order::Tiled) {
    const StoredTensor &w = parts_.codes, &s = parts_.scales;
    columns_ = 2 * w.shape[1];
    blocks_ = columns_ / kNvfp4Group;
    const int64_t rows = w.shape[0];
    const Shape plain{rows, blocks_}, padded{up_to(rows, 128), up_to(blocks_, 4)};
    if (columns_ % kNvfp4Group != 0 || s.shape != (tiled_ ? padded : plain) ||
        s.bytes.size() != static_cast<size_t>(s.shape.numel()))
      fail(ErrorCode::BadFile, "the scales {} of shape {} do not fit {} of shape {}", s.name, s.shape, w.name, w.shape);
    if (parts_.global.shape.numel() != 1 || parts_.global.dtype != DType::F32)
      fail(ErrorCode::BadFile, "{} is not one F32 number", parts_.global.name);
    std::memcpy(&global_, parts_.global.bytes.data(), sizeof global_);
    if (!std::isfinite(global_) || global_ < 0)
      fail(ErrorCode::BadFile, "{} holds {}, which is not a valid scale", parts_.global.name, global_);
    if (parts_.input_factors) read_input_factors(*parts_.input_factors);
  }

  void rows(int64_t begin, int64_t end, float* out) const override {
    std::vector<float> scales(static_cast<size_t>(blocks_));
    const auto* codes = reinterpret_cast<const uint8_t*>(parts_.codes.bytes.data());
    for (int64_t r = begin; r < end; ++r, out += columns_) {
      load_scales(r, scales);
      const uint8_t* row = codes + r * (columns_ / 2);
      for (int64_t j = 0; j < columns_ / 2; ++j) {
        const float scale = scales[static_cast<size_t>(2 * j / kNvfp4Group)];
        const float high = kE2m1[row[j] >> 4] * scale, low = kE2m1[row[j] & 15] * scale;
        out[2 * j] = tiled_ ? high : low;
        out[2 * j + 1] = tiled_ ? low : high;
      }
      for (size_t c = 0; c < input_factors_.size(); ++c) out[c] *= input_factors_[c];
    }
  }

  std::optional<DType> block_type() const override {
    return columns_ % 128 == 0 && input_factors_.empty() ? std::optional(DType::NVFP4) : std::nullopt;
  }

  void blocks(int64_t row, std::byte* out) const override {
    const auto* scales = parts_.scales.bytes.data();
    const std::byte* codes = parts_.codes.bytes.data() + row * (columns_ / 2);
    for (int64_t block = 0; block < columns_ / 128; ++block, codes += 64) {
      std::memcpy(out, &global_, sizeof global_);
      out += sizeof global_;
      for (int64_t c = 8 * block; c < 8 * block + 8; ++c) *out++ = scales[scale_at(row, c)];
      for (int64_t i = 0; i < 64; ++i) *out++ = tiled_ ? codes[i] << 4 | codes[i] >> 4 : codes[i];
    }
  }

 private:
  int64_t scale_at(int64_t r, int64_t c) const { return tiled_ ? tiled_scale_offset(r, c, blocks_) : r * blocks_ + c; }

  void load_scales(int64_t r, std::vector<float>& scales) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(parts_.scales.bytes.data());
    for (int64_t c = 0; c < blocks_; ++c) scales[static_cast<size_t>(c)] = e4m3_to_float(bytes[scale_at(r, c)]) * global_;
  }

  void read_input_factors(const StoredTensor& t) {
    if (t.shape.numel() != columns_ || !t.dtype || !is_float(*t.dtype))
      fail(ErrorCode::BadFile, "{} of shape {} is not one factor for each of {} columns", t.name, t.shape, columns_);
    input_factors_.resize(static_cast<size_t>(columns_));
    read_values(*t.dtype, t.bytes.data(), columns_, input_factors_.data());
  }

  Nvfp4Parts parts_;
  bool tiled_;
  int64_t columns_ = 0, blocks_ = 0;
  float global_ = 1;
  std::vector<float> input_factors_;
};

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

class BnbValues final : public QuantisedValues {
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

int64_t tiled_scale_offset(int64_t r, int64_t c, int64_t blocks_per_row) {
  const int64_t tiles = (blocks_per_row + 3) / 4;
  return (r / 128 * tiles + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

std::shared_ptr<const QuantisedValues> nvfp4_values(const Nvfp4Parts& parts, Nvfp4Order order) {
  return std::make_shared<Nvfp4Values>(parts, order);
}

Shape bnb_shape(const BnbParts& parts) {
  const auto extents = parts.state.find("shape");
  Shape shape;
  if (extents != parts.state.end() && extents->is_array() && extents->size() == 2)
    for (const Json& e : *extents)
      if (e.is_number_integer() && e.get<int64_t>() > 0 && e.get<int64_t>() < (int64_t{1} << 31))
        shape = shape.append(e.get<int64_t>());
  if (shape.rank() != 2)
    fail(ErrorCode::BadFile, "the quant_state of {} does not contain the shape of a matrix", parts.codes.name);
  return shape;
}

std::shared_ptr<const QuantisedValues> bnb_values(const BnbParts& parts) { return std::make_shared<BnbValues>(parts); }

}  // namespace flux2
