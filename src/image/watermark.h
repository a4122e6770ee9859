#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "image/image.h"

namespace flux2 {

// An invisible mark: a short row of bits that is repeated over the colours of an image. It is the method "dwtDct" of the Python
// library invisible-watermark, bit for bit, so each reads what the other writes. It survives PNG, and usually JPEG of quality 90
// and more; scaling, cropping and rotating destroy it.
using WatermarkBits = std::vector<bool>;

// "flux": the 46 bits of the reference program. Otherwise 2 to 16 hexadecimal digits, four bits each, leading zeros included.
WatermarkBits watermark_bits(std::string_view text);

// The library refuses images of a smaller area.
constexpr bool is_large_enough_for_watermark(int64_t width, int64_t height) { return width * height >= 256 * 256; }

// Marks planes [3, height, width] of [−1, 1]; they need not be clamped, the result is.
void add_watermark(std::span<float> chw, int height, int width, const WatermarkBits& bits);
Image with_watermark(const Image& image, const WatermarkBits& bits);  // alpha is kept

// The `count` bits that an image carries, whether or not anybody wrote them.
WatermarkBits read_watermark(const Image& image, size_t count);

struct WatermarkMatch {
  int matched = 0, bits = 0;
  double chance = 1;  // of at least as many matches in an image without the mark

  bool is_found() const { return chance < 2e-7; }  // 40 of the reference program's 46 bits
};
WatermarkMatch find_watermark(const Image& image, const WatermarkBits& bits);

// A sentence for the user if bits that were written into the image cannot be read back. Empty if they can.
std::string watermark_problem(const Image& image, const WatermarkBits& bits);

}  // namespace flux2
