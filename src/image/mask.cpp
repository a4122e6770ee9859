#include "image/mask.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "image/resize.h"

namespace flux2 {

std::optional<std::array<int, 4>> four_numbers(std::string_view text) {
  std::array<int, 4> v{};
  const char *at = text.data(), *end = text.data() + text.size();
  for (size_t i = 0; i < 4; ++i) {
    const auto [stop, failure] = std::from_chars(at, end, v[i]);
    const bool well_ended = i == 3 ? stop == end : stop < end && *stop == ',';
    if (failure != std::errc() || !well_ended || v[i] < -kMaxImageSide || v[i] > kMaxImageSide) return std::nullopt;
    if (i < 3) at = stop + 1;
  }
  return v;
}

Box parse_box(std::string_view text) {
  const auto v = four_numbers(text);
  check(v && (*v)[2] > 0 && (*v)[3] > 0, "\"{}\" is not a box; write x,y,width,height", text);
  return {(*v)[0], (*v)[1], (*v)[2], (*v)[3]};
}

Image luminance(const Image& picture) {
  if (picture.channels == 1) return picture;
  Image grey(picture.width, picture.height, 1);
  const uint8_t* from = picture.pixels.data();
  for (uint8_t& to : grey.pixels) {
    to = static_cast<uint8_t>((from[0] * 19595u + from[1] * 38470u + from[2] * 7471u + 0x8000u) >> 16);
    from += picture.channels;
  }
  return grey;
}

bool has_transparency(const Image& picture) {
  if (picture.channels != 4) return false;
  for (size_t i = 3; i < picture.pixels.size(); i += 4)
    if (picture.pixels[i] != 255) return true;
  return false;
}

Image mask_of_picture(const Image& picture) {
  if (!has_transparency(picture)) return luminance(picture);
  Image mask(picture.width, picture.height, 1);
  for (size_t i = 0; i < mask.pixels.size(); ++i) mask.pixels[i] = static_cast<uint8_t>(255 - picture.pixels[4 * i + 3]);
  return mask;
}

Image scaled_mask(const Image& mask, int width, int height) {
  const bool binary = std::all_of(mask.pixels.begin(), mask.pixels.end(), [](uint8_t v) { return v == 0 || v == 255; });
  Image scaled = resize(mask, width, height, ResizeFilter::Bilinear);
  if (binary)
    for (uint8_t& v : scaled.pixels) v = v >= 128 ? 255 : 0;
  return scaled;
}

void add_box(Image& mask, const Box& box) {
  const int left = std::max(box.x, 0), right = std::min(box.x + box.width, mask.width);
  const int top = std::max(box.y, 0), bottom = std::min(box.y + box.height, mask.height);
  check(left < right && top < bottom, "the box {},{},{},{} is outside the image of {}x{}", box.x, box.y, box.width, box.height,
        mask.width, mask.height);
  for (int y = top; y < bottom; ++y) std::fill(mask.at(left, y), mask.at(left, y) + (right - left), uint8_t{255});
}

void invert(Image& mask) {
  for (uint8_t& m : mask.pixels) m = static_cast<uint8_t>(255 - m);
}

std::optional<Box> bounds(const Image& mask) {
  int left = mask.width, right = -1, top = -1, bottom = -1;
  for (int y = 0; y < mask.height; ++y) {
    const uint8_t *row = mask.row(y), *end = row + mask.width;
    const uint8_t* first = std::find_if(row, end, [](uint8_t m) { return m != 0; });
    if (first == end) continue;
    int last = mask.width - 1;
    while (row[last] == 0) --last;
    left = std::min(left, static_cast<int>(first - row));
    right = std::max(right, last);
    if (top < 0) top = y;
    bottom = y;
  }
  if (right < 0) return std::nullopt;
  return Box{left, top, right - left + 1, bottom - top + 1};
}

namespace {

// Every value reaches `reach` pixels to either side; `out` takes what is larger than its own.
void spread_row(const uint8_t* row, uint8_t* out, int width, int reach) {
  for (int x = 0, end = 0; x < width; x = end + 1) {
    end = x;
    while (end + 1 < width && row[end + 1] == row[x]) ++end;  // a stretch of one value spreads as one
    if (row[x] == 0) continue;
    for (int i = std::max(0, x - reach); i <= std::min(width - 1, end + reach); ++i) out[i] = std::max(out[i], row[x]);
  }
}

// The mean over `radius` neighbours to either side, along one axis of a picture whose pixels lie `stride` apart.
void average(const uint8_t* in, uint8_t* out, int length, size_t stride, int radius) {
  const auto at = [&](int i) { return in[static_cast<size_t>(std::clamp(i, 0, length - 1)) * stride]; };
  const int count = 2 * radius + 1;
  int sum = 0;
  for (int i = -radius; i <= radius; ++i) sum += at(i);
  for (int i = 0; i < length; ++i) {
    out[static_cast<size_t>(i) * stride] = static_cast<uint8_t>((sum + count / 2) / count);
    sum += at(i + radius + 1) - at(i - radius);
  }
}

Image averaged(const Image& mask, int radius) {
  if (radius == 0) return mask;
  Image across(mask.width, mask.height, 1), both(mask.width, mask.height, 1);
  const auto width = static_cast<size_t>(mask.width);
  for (int y = 0; y < mask.height; ++y) average(mask.row(y), across.row(y), mask.width, 1, radius);
  for (int x = 0; x < mask.width; ++x) average(across.at(x, 0), both.at(x, 0), mask.height, width, radius);
  return both;
}

Image with_border(const Image& mask, const Box& box, int margin, Box& wider) {
  const int left = std::max(0, box.x - margin), top = std::max(0, box.y - margin);
  const int right = std::min(mask.width, box.x + box.width + margin), bottom = std::min(mask.height, box.y + box.height + margin);
  wider = {left, top, right - left, bottom - top};
  return crop(mask, left, top, wider.width, wider.height);
}

// Applies `change`, which affects pixels up to `margin` away, only where the mask is not empty.
template <class F>
Image around_bounds(const Image& mask, int margin, F&& change) {
  const auto box = bounds(mask);
  if (!box || margin <= 0) return mask;
  Box wider;
  const Image changed = change(with_border(mask, *box, margin, wider));
  Image result = mask;
  for (int y = 0; y < wider.height; ++y) std::copy_n(changed.row(y), wider.width, result.at(wider.x, wider.y + y));
  return result;
}

}  // namespace

Image grown(const Image& mask, int radius) {
  return around_bounds(mask, radius, [&](const Image& part) {
    Image result = part;
    for (int dy = -radius; dy <= radius; ++dy) {
      const int reach = static_cast<int>(std::sqrt(static_cast<double>(radius) * radius - static_cast<double>(dy) * dy));
      for (int y = std::max(0, -dy); y < std::min(part.height, part.height - dy); ++y)
        spread_row(part.row(y), result.row(y + dy), part.width, reach);
    }
    return result;
  });
}

// Two averages make the ramp of a tent, which reaches as far as both together.
Image feathered(const Image& mask, int radius) {
  return around_bounds(mask, radius,
                       [&](const Image& part) { return averaged(averaged(part, radius / 2), radius - radius / 2); });
}

void blend(Image& kept, const Image& made, const Image& mask) {
  require(kept.width == made.width && kept.height == made.height && mask.width == made.width && mask.height == made.height &&
              kept.channels >= 3 && made.channels == 3 && mask.channels == 1,
          "blend: images of {}x{} and {}x{} by a mask of {}x{}", kept.width, kept.height, made.width, made.height, mask.width,
          mask.height);
  uint8_t* to = kept.pixels.data();
  const uint8_t* from = made.pixels.data();
  for (const uint8_t m : mask.pixels) {
    const auto mixed = [m](unsigned a, unsigned b) { return static_cast<uint8_t>((a * (255u - m) + b * m + 127u) / 255u); };
    if (m != 0)
      for (int c = 0; c < kept.channels; ++c) to[c] = mixed(to[c], c < 3 ? from[c] : 255u);
    to += kept.channels, from += 3;
  }
}

Image crop_extended(const Image& picture, const Box& box) {
  Image part(box.width, box.height, picture.channels);
  for (int y = 0; y < box.height; ++y) {
    const int row = std::clamp(box.y + y, 0, picture.height - 1);
    for (int x = 0; x < box.width; ++x)
      std::copy_n(picture.at(std::clamp(box.x + x, 0, picture.width - 1), row), picture.channels, part.at(x, y));
  }
  return part;
}

}  // namespace flux2
