#include "image/watermark.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "image/pixels.h"

namespace flux2 {

namespace {

constexpr float kScale = 36;  // a marked value is 9 (bit 0) or 27 (bit 1) above a multiple of this
constexpr int kBlock = 4;     // coefficients a side; each coefficient stands for 2×2 pixels
constexpr uint64_t kFluxMessage = 0x2AFE879CF52E;
constexpr int kFluxBits = 46;  // the reference program drops the two leading zeros of its 48 digits

// Samples of one pixel, 0…255 but not clamped. OpenCV's float variant of YUV, whose offset is 0.5 and whose way back is not the
// exact inverse: both are part of the format.
struct Rgb {
  float r, g, b;
  float y() const { return std::fma(b, 0.114F, std::fma(g, 0.587F, r * 0.299F)); }
  float u() const { return std::fma(b - y(), 0.492F, 0.5F); }
  float v() const { return std::fma(r - y(), 0.877F, 0.5F); }
};

Rgb rgb_of(float y, float u, float v) {
  return {y + 1.140F * (v - 0.5F), y - 0.395F * (u - 0.5F) - 0.581F * (v - 0.5F), y + 2.032F * (u - 0.5F)};
}

// U of an image. The mark covers whole cells of 4×4 pixels; what is left at the right and at the bottom stays unmarked.
struct Colours {
  int width, height;
  std::vector<float> values;  // [height, width]

  float& at(int x, int y) { return values[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)]; }
  int marked_width() const { return width / 4 * 4; }
  int marked_height() const { return height / 4 * 4; }
  int blocks_across() const { return marked_width() / (2 * kBlock); }
  int blocks_down() const { return marked_height() / (2 * kBlock); }

  // The low band of a Haar transform for the 2×2 pixels at (x, y).
  float low(int x, int y) { return (at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1)) / 2; }
};

// The coefficient of a block that carries its bit: the largest one, never the first.
struct Carrier {
  int x = 0, y = 0;  // its 2×2 pixels
  float value = 0;
};

Carrier carrier_of(Colours& u, int block_x, int block_y) {
  Carrier largest{.value = 0};
  for (int k = 1; k < kBlock * kBlock; ++k) {
    const int x = 2 * (block_x * kBlock + k % kBlock), y = 2 * (block_y * kBlock + k / kBlock);
    const float value = u.low(x, y);
    if (k == 1 || std::abs(value) > std::abs(largest.value)) largest = {x, y, value};
  }
  return largest;
}

void mark(Colours& u, const WatermarkBits& bits) {
  size_t block = 0;
  for (int by = 0; by < u.blocks_down(); ++by)
    for (int bx = 0; bx < u.blocks_across(); ++bx, ++block) {
      const Carrier carrier = carrier_of(u, bx, by);
      const float bit = bits[block % bits.size()] ? 1 : 0;
      const float size = kScale * std::floor(std::abs(carrier.value) / kScale) + 9 + 18 * bit;
      const float shift = (std::copysign(size, carrier.value < 0 ? -1.0F : 1.0F) - carrier.value) / 2;
      for (const int dy : {0, 1})
        for (const int dx : {0, 1}) u.at(carrier.x + dx, carrier.y + dy) += shift;
    }
  // The library hands its two detail bands to the inverse transform in the wrong order, which transposes every 2×2 pixels.
  for (int y = 0; y < u.marked_height(); y += 2)
    for (int x = 0; x < u.marked_width(); x += 2) std::swap(u.at(x + 1, y), u.at(x, y + 1));
}

float level(float sample) { return 255.0F * (0.5F * sample + 0.5F); }
float sample_of(float level) { return 2 * std::clamp(level / 255.0F, 0.0F, 1.0F) - 1; }

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

WatermarkBits bits_of(uint64_t message, int count) {
  WatermarkBits bits;
  for (int i = count - 1; i >= 0; --i) bits.push_back((message >> i & 1) != 0);
  return bits;
}

// The chance that at least `matched` of `bits` coins show what was said.
double chance_of(int matched, int bits) {
  double chance = 0, ways = 1;  // of choosing k of the bits that do not match
  for (int k = 0; k <= bits - matched; ++k) {
    chance += std::ldexp(ways, -bits);
    ways = ways * (bits - k) / (k + 1);
  }
  return std::min(chance, 1.0);
}

}  // namespace

WatermarkBits watermark_bits(std::string_view text) {
  if (text == "flux") return bits_of(kFluxMessage, kFluxBits);
  uint64_t message = 0;
  for (const char c : text) {
    check(digit_of(c) >= 0 && text.size() <= 16, "\"{}\" is not a watermark: use flux or 2 to 16 hexadecimal digits", text);
    message = message << 4 | static_cast<uint64_t>(digit_of(c));
  }
  check(text.size() >= 2, "\"{}\" is not a watermark: use flux or 2 to 16 hexadecimal digits", text);
  return bits_of(message, 4 * static_cast<int>(text.size()));
}

void add_watermark(std::span<float> chw, int height, int width, const WatermarkBits& bits) {
  check(!bits.empty(), "a watermark needs bits");
  check(is_large_enough_for_watermark(width, height), "an image of {}x{} is too small for a watermark", width, height);
  const size_t plane = static_cast<size_t>(height) * static_cast<size_t>(width);
  const auto pixel = [&](size_t i) { return Rgb{level(chw[i]), level(chw[plane + i]), level(chw[2 * plane + i])}; };
  Colours u{width, height, std::vector<float>(plane)};
  for (size_t i = 0; i < plane; ++i) u.values[i] = pixel(i).u();
  mark(u, bits);
  for (size_t i = 0; i < plane; ++i) {
    const Rgb old = pixel(i), marked = rgb_of(old.y(), u.values[i], old.v());
    chw[i] = sample_of(marked.r), chw[plane + i] = sample_of(marked.g), chw[2 * plane + i] = sample_of(marked.b);
  }
}

Image with_watermark(const Image& image, const WatermarkBits& bits) {
  std::vector<float> planes = from_rgb8(to_rgb(image, AlphaRule::Drop));
  add_watermark(planes, image.height, image.width, bits);
  const Image marked = to_rgb8(planes, image.height, image.width, Rounding::Nearest);
  if (image.channels != 4) return marked;
  Image out = image;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) std::copy_n(marked.at(x, y), 3, out.at(x, y));
  return out;
}

WatermarkBits read_watermark(const Image& image, size_t count) {
  const Image rgb = to_rgb(image, AlphaRule::Drop);
  Colours u{rgb.width, rgb.height, {}};
  u.values.reserve(rgb.pixels.size() / 3);
  for (size_t i = 0; i + 2 < rgb.pixels.size(); i += 3)
    u.values.push_back(
        Rgb{static_cast<float>(rgb.pixels[i]), static_cast<float>(rgb.pixels[i + 1]), static_cast<float>(rgb.pixels[i + 2])}.u());
  std::vector<int> ones(count), seen(count);
  size_t block = 0;
  for (int by = 0; by < u.blocks_down(); ++by)
    for (int bx = 0; bx < u.blocks_across(); ++bx, ++block) {
      ++seen[block % count];
      if (std::fmod(std::abs(carrier_of(u, bx, by).value), kScale) > 18) ++ones[block % count];
    }
  WatermarkBits bits;
  for (size_t i = 0; i < count; ++i) bits.push_back(255 * ones[i] > 127 * seen[i]);
  return bits;
}

WatermarkMatch find_watermark(const Image& image, const WatermarkBits& bits) {
  const WatermarkBits found = read_watermark(image, bits.size());
  WatermarkMatch match{.bits = static_cast<int>(bits.size())};
  for (size_t i = 0; i < bits.size(); ++i) match.matched += found[i] == bits[i] ? 1 : 0;
  match.chance = chance_of(match.matched, match.bits);
  return match;
}

std::string watermark_problem(const Image& image, const WatermarkBits& bits) {
  if (find_watermark(image, bits).is_found()) return {};
  return "the watermark cannot be read from this image: areas of one flat or fully saturated colour do not hold it";
}

}  // namespace flux2
