#include "pipeline/inpaint.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "image/align.h"
#include "image/resize.h"

namespace flux2 {

namespace {

constexpr int kGrid = 16, kMinSide = 64, kMaxSide = 4096;
constexpr double kMostPixels = 4.2e6, kDiffusersPixels = 1024.0 * 1024.0;

int rounded_up(int side) { return (side + kGrid - 1) / kGrid * kGrid; }
int rounded_down(int side) { return std::max(kGrid, side / kGrid * kGrid); }

Box with_padding(const Box& box, int padding, const Image& canvas) {
  const int left = std::max(0, box.x - padding), top = std::max(0, box.y - padding);
  const int right = std::min(canvas.width, box.x + box.width + padding),
            bottom = std::min(canvas.height, box.y + box.height + padding);
  return {left, top, right - left, bottom - top};
}

// A range of `wanted` pixels around another range. It is moved inside an image of `total` pixels if it fits; otherwise it starts
// at 0.
void widen(int& start, int& length, int wanted, int total) {
  const int middle = start - (wanted - length) / 2;
  start = std::clamp(middle, 0, std::max(0, total - wanted));
  length = wanted;
}

// The largest value of each token's 16 × 16 pixels: if any pixel of a token may change, the token must be free to change.
std::vector<float> largest_of_tokens(const Image& mask) {
  std::vector<float> tokens;
  for (int y = 0; y < mask.height; y += kGrid)
    for (int x = 0; x < mask.width; x += kGrid) {
      uint8_t largest = 0;
      for (int v = y; v < y + kGrid; ++v) largest = std::max(largest, *std::max_element(mask.at(x, v), mask.at(x, v) + kGrid));
      tokens.push_back(static_cast<float>(largest) / 255.0f);
    }
  return tokens;
}

// Corrects shift, scale and colour of the result, measured on the kept part of the original.
Image brought_back(const Image& made, const Image& original, const Image& mask) {
  Image kept = mask;
  invert(kept);
  return aligned(made, measure_alignment(made, to_rgb(original), kept));
}

// Bilinear interpolation without antialiasing sees the four pixels in the middle of a token.
std::vector<float> middle_of_tokens(const Image& mask) {
  const auto is_new = [&](int x, int y) { return *mask.at(x, y) >= 128 ? 0.25f : 0.0f; };
  std::vector<float> tokens;
  for (int y = kGrid / 2 - 1; y < mask.height; y += kGrid)
    for (int x = kGrid / 2 - 1; x < mask.width; x += kGrid)
      tokens.push_back(is_new(x, y) + is_new(x + 1, y) + is_new(x, y + 1) + is_new(x + 1, y + 1));
  return tokens;
}

}  // namespace

Margins parse_margins(std::string_view text) {
  const auto v = four_numbers(text);
  const bool good = v && std::all_of(v->begin(), v->end(), [](int side) { return side >= 0 && side <= kMaxSide; });
  check(good, "\"{}\" is not valid: write left,top,right,bottom, each 0 to {}", text, kMaxSide);
  return {(*v)[0], (*v)[1], (*v)[2], (*v)[3]};
}

void extend(Image& canvas, Image& mask, const Margins& m) {
  const Box whole{-m.left, -m.top, canvas.width + m.left + m.right, canvas.height + m.top + m.bottom};
  check_image_size(whole.width, whole.height);
  Image larger(whole.width, whole.height, 1);
  invert(larger);
  for (int y = 0; y < mask.height; ++y) std::copy_n(mask.row(y), mask.width, larger.at(m.left, m.top + y));
  mask = std::move(larger);
  canvas = crop_extended(canvas, whole);
}

Inpaint::Inpaint(std::shared_ptr<const Image> canvas, const Image& mask, const InpaintOptions& options)
    : canvas_(std::move(canvas)), options_(options) {
  check(canvas_->channels >= 3 && mask.channels == 1, "inpainting needs a colour image and a mask with one channel");
  check(mask.width == canvas_->width && mask.height == canvas_->height,
        "the mask is {}x{}, the image {}x{}: they need the same size", mask.width, mask.height, canvas_->width, canvas_->height);
  if (!bounds(mask))
    throw Error(ErrorCode::InvalidArgument, "the mask is empty: nothing would be regenerated",
                Hint("white areas are regenerated; {0} swaps white and black", {set_option("mask_invert")}));
  if (options_.mode == InpaintOptions::Mode::Diffusers) {
    plan_whole(mask);
  } else {
    mask_ = feathered(grown(mask, options_.grow), options_.feather);
    plan_region();
  }
}

void Inpaint::plan_region() {
  const Box box = *bounds(mask_), whole{0, 0, canvas_->width, canvas_->height};
  const bool crop_it =
      options_.crop == InpaintOptions::Crop::On || (options_.crop == InpaintOptions::Crop::Auto && 4 * box.area() < whole.area());
  region_ = crop_it ? with_padding(box, options_.padding, *canvas_) : whole;
  if (options_.width > 0) {
    // A region with the requested aspect ratio, as far as the image allows.
    width_ = options_.width, height_ = options_.height;
    const double ratio = static_cast<double>(width_) / height_;
    const int wide = std::min(canvas_->width, static_cast<int>(std::lround(region_.height * ratio)));
    const int high = std::min(canvas_->height, static_cast<int>(std::lround(region_.width / ratio)));
    if (wide > region_.width) widen(region_.x, region_.width, wide, canvas_->width);
    else if (high > region_.height) widen(region_.y, region_.height, high, canvas_->height);
  } else {
    widen(region_.x, region_.width, std::max(kMinSide, rounded_up(region_.width)), canvas_->width);
    widen(region_.y, region_.height, std::max(kMinSide, rounded_up(region_.height)), canvas_->height);
    const double by_area = std::sqrt(kMostPixels / static_cast<double>(region_.area()));
    const double scale = std::min({1.0, by_area, static_cast<double>(kMaxSide) / std::max(region_.width, region_.height)});
    width_ = rounded_down(static_cast<int>(region_.width * scale));
    height_ = rounded_down(static_cast<int>(region_.height * scale));
  }
  picture_ = planes_of(resize(to_rgb(crop_extended(*canvas_, region_)), width_, height_));
  token_mask_ = largest_of_tokens(resize(crop_extended(mask_, region_), width_, height_, ResizeFilter::Bilinear));
}

void Inpaint::plan_whole(const Image& mask) {
  Image picture = to_rgb(*canvas_, AlphaRule::Drop);
  const double pixels = static_cast<double>(picture.width) * picture.height;
  if (pixels > kDiffusersPixels) {
    const double scale = std::sqrt(kDiffusersPixels / pixels);
    picture = resize(picture, static_cast<int>(picture.width * scale), static_cast<int>(picture.height * scale));
  }
  region_ = {0, 0, canvas_->width, canvas_->height};
  width_ = rounded_down(picture.width), height_ = rounded_down(picture.height);
  picture_ = planes_of(resize(picture, width_, height_));
  token_mask_ = middle_of_tokens(resize(mask, width_, height_));
  mask_ = mask;
}

Canvas Inpaint::canvas(double strength) const { return {picture_, strength, token_mask_}; }

Image Inpaint::finish(const Image& made) const {
  check(made.width == width_ && made.height == height_, "inpainting made {}x{} instead of {}x{}", made.width, made.height, width_,
        height_);
  if (options_.mode == InpaintOptions::Mode::Diffusers) return made;
  Image result = *canvas_;
  const Box inside{region_.x, region_.y, std::min(region_.width, result.width - region_.x),
                   std::min(region_.height, result.height - region_.y)};
  const auto here = [&](const Image& image) { return crop(image, inside.x, inside.y, inside.width, inside.height); };
  Image part = crop(resize(made, region_.width, region_.height), 0, 0, inside.width, inside.height);
  Image kept = here(result);
  const Image mask = here(mask_);
  if (options_.align) part = brought_back(part, kept, mask);
  blend(kept, part, mask);
  for (int y = 0; y < inside.height; ++y) std::copy_n(kept.row(y), kept.row_bytes(), result.at(inside.x, inside.y + y));
  return result;
}

}  // namespace flux2
