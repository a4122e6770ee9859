#include "pipeline/picture_size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr int kGrid = 16, kMinSide = 64;
constexpr int64_t kManyPixels = 4'200'000;

struct Preset {
  std::string_view name;
  PictureSize size;
};
constexpr std::array kPresets = {
    Preset{"square", {1024, 1024}}, Preset{"landscape", {1360, 768}}, Preset{"portrait", {768, 1360}},
    Preset{"3:2", {1248, 832}},     Preset{"2:3", {832, 1248}},       Preset{"16:9", {1360, 768}},
    Preset{"9:16", {768, 1360}},    Preset{"21:9", {1536, 656}},      Preset{"1:1", {1024, 1024}},
    Preset{"4:3", {1152, 864}},     Preset{"3:4", {864, 1152}},
};

int rounded(int side) { return (side + kGrid / 2) / kGrid * kGrid; }

}  // namespace

PictureSize parse_picture_size(std::string_view text) {
  for (const Preset& preset : kPresets)
    if (preset.name == text) return preset.size;
  PictureSize size;
  const char* end = text.data() + text.size();
  const auto [middle, first] = std::from_chars(text.data(), end, size.width);
  if (first == std::errc() && middle == end && size.width > 0) return {size.width, size.width};
  if (first == std::errc() && middle < end && (*middle == 'x' || *middle == 'X')) {
    const auto [last, second] = std::from_chars(middle + 1, end, size.height);
    if (second == std::errc() && last == end && size.width > 0 && size.height > 0) return size;
  }
  std::string names;
  for (const Preset& preset : kPresets) names += ", " + std::string(preset.name);
  fail(ErrorCode::InvalidArgument, "\"{}\" is not a size: write 1024x768 or 1024, or one of{}", text, names.substr(1));
}

PictureSize valid_picture_size(const PictureSize& wanted, bool strict, const Log& log, int largest) {
  for (const int side : {wanted.width, wanted.height})
    check(side >= kMinSide - kGrid / 2 && side < largest + kGrid / 2, "size {}x{}: each side must be from {} to {}", wanted.width,
          wanted.height, kMinSide, largest);
  const PictureSize size{rounded(wanted.width), rounded(wanted.height)};
  if (size.width != wanted.width || size.height != wanted.height) {
    if (strict)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("size {}x{}: sides must be multiples of {}", wanted.width, wanted.height, kGrid),
                  fmt::format("the nearest size is {}x{}", size.width, size.height));
    log.warn("size {}x{} is rounded to {}x{}: sides are multiples of {}", wanted.width, wanted.height, size.width, size.height,
             kGrid);
  }
  if (int64_t{size.width} * size.height > kManyPixels)
    log.warn("{}x{} is more than 4.2 megapixels, which the model was not trained for", size.width, size.height);
  return size;
}

PictureSize size_like(const PictureSize& picture) {
  const double width = picture.width, height = picture.height;
  const double by_area = std::sqrt(static_cast<double>(kManyPixels) / (width * height));
  const double scale = std::min({1.0, by_area, kUsualSide / std::max(width, height)});
  const auto side = [&](double length) { return std::max(kMinSide, static_cast<int>(length * scale) / kGrid * kGrid); };
  return {side(width), side(height)};
}

}  // namespace flux2
