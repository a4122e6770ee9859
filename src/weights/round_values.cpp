#include "weights/round_values.h"

#include <algorithm>
#include <cmath>

#include "tensor/dtype.h"
#include "weights/row_encoders.h"

namespace flux2 {

namespace {

// The magnitudes are 0, ½, 1, 1½, 2, 3, 4, 6: a value on the middle between two goes to the one whose code is even. Without
// branches, so that the loop becomes vectors.
uint8_t code_of(float value) {
  const float a = std::abs(value);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | ((code != 0 && value < 0) << 3));
}

}  // namespace

void round_to_int8(const float* x, int64_t count, float factor, int8_t* out) { row_encoders().to_int8(x, count, factor, out); }
void round_to_e4m3(const float* x, int64_t count, float factor, uint8_t* out) { row_encoders().to_e4m3(x, count, factor, out); }

void nvfp4_scales(const float* x, int64_t columns, float global, uint8_t* scales) {
  for (int64_t group = 0; group < columns / kNvfp4Group; ++group) {
    float largest = 0;
    for (int64_t i = 0; i < kNvfp4Group; ++i) largest = std::max(largest, std::abs(x[group * kNvfp4Group + i]));
    const float scale = global > 0 ? std::min(largest / 6.0f / global, 448.0f) : 0.0f;
    round_to_e4m3(&scale, 1, 1.0f, scales + group);
  }
}

void nvfp4_codes(const float* x, int64_t columns, float global, const uint8_t* scales, uint8_t* codes) {
  for (int64_t group = 0; group < columns / kNvfp4Group; ++group) {
    const float scale = e4m3_to_float(scales[group]) * global;
    const float factor = scale > 0 ? 1.0f / scale : 0.0f;
    std::array<uint8_t, kNvfp4Group> each;
    for (size_t i = 0; i < each.size(); ++i) each[i] = code_of(x[group * kNvfp4Group + static_cast<int64_t>(i)] * factor);
    for (size_t i = 0; i < each.size(); i += 2)
      codes[(group * kNvfp4Group + static_cast<int64_t>(i)) / 2] = static_cast<uint8_t>(each[i] << 4 | each[i + 1]);
  }
}

}  // namespace flux2
