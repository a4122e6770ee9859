#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "weights/encode_nvfp4.h"
#include "weights/packed_kinds.h"
#include "weights/read_values.h"

namespace flux2 {

namespace {

int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Nvfp4Values final : public PackedValues {
 public:
  Nvfp4Values(const Nvfp4Parts& parts, Nvfp4Order order) : parts_(parts), tiled_(order == Nvfp4Order::Tiled) {
    const StoredTensor &w = parts_.codes, &s = parts_.scales;
    columns_ = 2 * w.shape[1];
    blocks_ = columns_ / kNvfp4Group;
    const int64_t rows = w.shape[0];
    const Shape plain{rows, blocks_}, padded{up_to(rows, 128), up_to(blocks_, 4)};
    if (columns_ % kNvfp4Group != 0 || s.shape != (tiled_ ? padded : plain) || s.bytes.size() != static_cast<size_t>(s.shape.numel()))
      fail(ErrorCode::BadFile, "the scales {} of shape {} do not fit {} of shape {}", s.name, s.shape, w.name, w.shape);
    if (parts_.global.shape.numel() != 1 || parts_.global.dtype != DType::F32)
      fail(ErrorCode::BadFile, "{} is not one F32 number", parts_.global.name);
    std::memcpy(&global_, parts_.global.bytes.data(), sizeof global_);
    if (!std::isfinite(global_) || global_ < 0)
      fail(ErrorCode::BadFile, "{} holds {}, which is no scale", parts_.global.name, global_);
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

 private:
  void load_scales(int64_t r, std::vector<float>& scales) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(parts_.scales.bytes.data());
    for (int64_t c = 0; c < blocks_; ++c) {
      const int64_t at = tiled_ ? tiled_scale_offset(r, c, blocks_) : r * blocks_ + c;
      scales[static_cast<size_t>(c)] = e4m3_to_float(bytes[at]) * global_;
    }
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

}  // namespace

int64_t tiled_scale_offset(int64_t r, int64_t c, int64_t blocks_per_row) {
  const int64_t tiles = (blocks_per_row + 3) / 4;
  return (r / 128 * tiles + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

std::shared_ptr<const PackedValues> nvfp4_values(const Nvfp4Parts& parts, Nvfp4Order order) {
  return std::make_shared<Nvfp4Values>(parts, order);
}

}  // namespace flux2
