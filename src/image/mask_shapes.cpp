#include "image/mask_shapes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "image/pixels.h"

namespace flux2 {

namespace {

// The whole text as a number from low to high.
std::optional<int> number_in(std::string_view text, int low, int high, int base = 10) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool fits = failure == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
  return fits ? std::optional(value) : std::nullopt;
}

// Splits off ":tolerance". False if it is not a number from 0 to 255.
bool take_tolerance(std::string_view& text, int& tolerance) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return true;
  const auto given = number_in(text.substr(colon + 1), 0, 255);
  text = text.substr(0, colon);
  tolerance = given.value_or(0);
  return given.has_value();
}

std::optional<Pixel> pixel_in(std::string_view text, int lowest) {
  const size_t comma = text.find(',');
  if (comma == text.npos) return std::nullopt;
  const auto x = number_in(text.substr(0, comma), lowest, kMaxImageSide);
  const auto y = number_in(text.substr(comma + 1), lowest, kMaxImageSide);
  return x && y ? std::optional(Pixel{*x, *y}) : std::nullopt;
}

bool is_close(const uint8_t* a, const uint8_t* b, int channels, int tolerance) {
  for (int c = 0; c < channels; ++c)
    if (std::abs(int{a[c]} - int{b[c]}) > tolerance) return false;
  return true;
}

void require_same_size(const Image& mask, const Image& picture) {
  require(mask.width == picture.width && mask.height == picture.height && mask.channels == 1,
          "a mask of {}x{} for an image of {}x{}", mask.width, mask.height, picture.width, picture.height);
}

}  // namespace

Wand parse_wand(std::string_view text) {
  Wand wand;
  std::string_view rest = text;
  const bool is_number = take_tolerance(rest, wand.tolerance);
  const auto at = pixel_in(rest, 0);
  check(is_number && at, "\"{}\" is not a point; write x,y or x,y:tolerance with a tolerance from 0 to 255", text);
  wand.at = *at;
  return wand;
}

ColourChoice parse_colour_choice(std::string_view text) {
  ColourChoice choice;
  std::string_view rest = text;
  bool is_valid = take_tolerance(rest, choice.tolerance);
  if (rest.starts_with('#')) rest.remove_prefix(1);
  is_valid = is_valid && rest.size() == 6;
  for (size_t i = 0; is_valid && i < 3; ++i) {
    const auto value = number_in(rest.substr(2 * i, 2), 0, 255, 16);
    is_valid = value.has_value();
    choice.colour[i] = static_cast<uint8_t>(value.value_or(0));
  }
  check(is_valid, "\"{}\" is not a colour; write #rrggbb or #rrggbb:tolerance with a tolerance from 0 to 255", text);
  return choice;
}

std::vector<Pixel> parse_polygon(std::string_view text) {
  constexpr size_t kMostCorners = 10'000;
  std::vector<Pixel> corners;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find_first_of(" ;"), rest.size());
    const std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (one.empty()) continue;
    const auto corner = pixel_in(one, -kMaxImageSide);
    check(corner.has_value(), "\"{}\" is not a corner; write a polygon as x,y x,y x,y", one);
    corners.push_back(*corner);
    check(corners.size() <= kMostCorners, "a polygon has at most {} corners", kMostCorners);
  }
  check(corners.size() >= 3, "\"{}\" has {} corners; a polygon needs at least three: x,y x,y x,y", text, corners.size());
  return corners;
}

MaskPoint parse_mask_point(std::string_view text) {
  MaskPoint point;
  std::string_view rest = text;
  point.include = !rest.ends_with(":0");
  if (rest.ends_with(":0") || rest.ends_with(":1")) rest.remove_suffix(2);
  const size_t comma = std::min(rest.find(','), rest.size());
  const auto read = [](std::string_view digits, double& value) {
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return failure == std::errc() && end == digits.data() + digits.size() && value >= 0 && value <= kMaxImageSide;
  };
  check(comma < rest.size() && read(rest.substr(0, comma), point.x) && read(rest.substr(comma + 1), point.y),
        "\"{}\" is not a point; write x,y, or x,y:0 for a place that does not belong to the object", text);
  return point;
}

void add_ellipse(Image& mask, const Box& box) {
  Image all(mask.width, mask.height, 1);
  add_box(all, box);  // checks that they meet
  const double middle_x = box.x + box.width / 2.0, middle_y = box.y + box.height / 2.0;
  const auto clipped = bounds(all);
  bool any = false;
  for (int y = clipped->y; y < clipped->y + clipped->height; ++y)
    for (int x = clipped->x; x < clipped->x + clipped->width; ++x) {
      const double dx = (x + 0.5 - middle_x) / (box.width / 2.0), dy = (y + 0.5 - middle_y) / (box.height / 2.0);
      if (dx * dx + dy * dy > 1) continue;
      *mask.at(x, y) = 255;
      any = true;
    }
  check(any, "the ellipse in {},{},{},{} is outside the image of {}x{}", box.x, box.y, box.width, box.height, mask.width,
        mask.height);
}

void add_polygon(Image& mask, const std::vector<Pixel>& corners) {
  bool any = false;
  std::vector<double> crossings;
  for (int y = 0; y < mask.height; ++y) {
    const double middle = y + 0.5;
    crossings.clear();
    for (size_t i = 0; i < corners.size(); ++i) {
      const Pixel &a = corners[i], &b = corners[(i + 1) % corners.size()];
      if ((a.y <= middle) == (b.y <= middle)) continue;
      crossings.push_back(a.x + (middle - a.y) * (b.x - a.x) / (b.y - a.y));
    }
    std::sort(crossings.begin(), crossings.end());
    for (size_t i = 0; i + 1 < crossings.size(); i += 2) {
      // Pixels whose middle, x + 0.5, lies between two crossings.
      const int first = std::max(0, static_cast<int>(std::ceil(crossings[i] - 0.5)));
      const int last = std::min(mask.width - 1, static_cast<int>(std::ceil(crossings[i + 1] - 0.5)) - 1);
      for (int x = first; x <= last; ++x) *mask.at(x, y) = 255;
      any = any || first <= last;
    }
  }
  check(any, "the polygon does not cover any pixel of the image of {}x{}", mask.width, mask.height);
}

void add_wand(Image& mask, const Image& picture, const Wand& wand) {
  require_same_size(mask, picture);
  const auto [column, line] = wand.at;
  check(column < picture.width && line < picture.height, "the point {},{} is outside the image of {}x{}", column, line,
        picture.width, picture.height);
  const int channels = std::min(picture.channels, 3);
  const uint8_t* colour = picture.at(column, line);
  std::vector<bool> seen(static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height));
  const auto wanted = [&](int x, int y) {
    return !seen[static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(x)] &&
           is_close(picture.at(x, y), colour, channels, wand.tolerance);
  };
  // Whole runs of a row at a time: each is filled once, and the runs that touch it above and below wait for their turn.
  std::vector<Pixel> waiting{wand.at};
  while (!waiting.empty()) {
    const auto [x, y] = waiting.back();
    waiting.pop_back();
    if (!wanted(x, y)) continue;
    int left = x, right = x;
    while (left > 0 && wanted(left - 1, y)) --left;
    while (right + 1 < picture.width && wanted(right + 1, y)) ++right;
    for (int i = left; i <= right; ++i) {
      seen[static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(i)] = true;
      *mask.at(i, y) = 255;
    }
    for (const int next : {y - 1, y + 1}) {
      if (next < 0 || next >= picture.height) continue;
      for (int i = left; i <= right; ++i)
        if (wanted(i, next) && (i == left || !wanted(i - 1, next))) waiting.push_back({i, next});
    }
  }
}

void add_colour(Image& mask, const Image& picture, const ColourChoice& choice) {
  require_same_size(mask, picture);
  const Image rgb = to_rgb(picture);
  bool any = false;
  for (int y = 0; y < rgb.height; ++y)
    for (int x = 0; x < rgb.width; ++x)
      if (is_close(rgb.at(x, y), choice.colour.data(), 3, choice.tolerance)) *mask.at(x, y) = 255, any = true;
  check(any, "no pixel has the colour #{:02x}{:02x}{:02x} within a tolerance of {}; a larger tolerance finds more",
        choice.colour[0], choice.colour[1], choice.colour[2], choice.tolerance);
}

void add_difference(Image& mask, const Image& picture, const Image& other, int tolerance) {
  require_same_size(mask, picture);
  check(other.width == picture.width && other.height == picture.height,
        "the images to compare are {}x{} and {}x{}: they need the same size", picture.width, picture.height, other.width,
        other.height);
  const Image a = to_rgb(picture), b = to_rgb(other);
  bool any = false;
  for (int y = 0; y < a.height; ++y)
    for (int x = 0; x < a.width; ++x)
      if (!is_close(a.at(x, y), b.at(x, y), 3, tolerance)) *mask.at(x, y) = 255, any = true;
  check(any, "the images to compare do not differ by more than {} levels anywhere", tolerance);
}

Image with_overlay(const Image& picture, const Image& mask) {
  require_same_size(mask, picture);
  constexpr std::array<unsigned, 3> kRed = {255, 40, 40};
  Image shown = to_rgb(picture);
  uint8_t* to = shown.pixels.data();
  for (const uint8_t m : mask.pixels) {
    for (size_t c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>((to[c] * (510u - m) + kRed[c] * m) / 510u);
    to += 3;
  }
  return shown;
}

}  // namespace flux2
