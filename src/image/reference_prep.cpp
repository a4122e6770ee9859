#include "image/reference_prep.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "image/resize.h"

namespace flux2 {

namespace {

constexpr int kGrid = 16, kMinSide = 64, kMaxRatio = 8;
constexpr int64_t kAlone = 2024 * 2024, kTogether = 1024 * 1024;
constexpr int64_t kLargest = 4096 * 4096;  // the largest input of the autoencoder

int64_t limit_of(const ReferenceRules& rules, size_t count) {
  if (rules.max_pixels) return *rules.max_pixels;
  return rules.prep != ReferencePrep::Diffusers && count == 1 ? kAlone : kTogether;
}

}  // namespace

ReferencePrep reference_prep_named(std::string_view name) {
  if (name == "ours") return ReferencePrep::Ours;
  if (name == "bfl") return ReferencePrep::Bfl;
  if (name == "diffusers") return ReferencePrep::Diffusers;
  fail(ErrorCode::InvalidArgument, "references cannot be prepared as \"{}\"; use ours, bfl or diffusers", name);
}

Image prepare_reference(const Image& picture, const ReferenceRules& rules, size_t count) {
  const int w = picture.width, h = picture.height;
  check(std::min(w, h) >= kMinSide, "a reference of {}x{} is too small: both sides need at least {} pixels", w, h, kMinSide);
  check(std::max(w, h) <= int64_t{kMaxRatio} * std::min(w, h),
        "a reference of {}x{} is too elongated: the ratio of its sides may be at most {}:1", w, h, kMaxRatio);
  const AlphaRule alpha = rules.prep == ReferencePrep::Ours ? AlphaRule::OverWhite : AlphaRule::Drop;
  const int64_t pixels = int64_t{w} * h, limit = limit_of(rules, count);
  if (rules.resize && pixels > limit) {
    const double scale = std::sqrt(static_cast<double>(limit) / static_cast<double>(pixels));
    const Image image =
        resize_to_rgb(picture, alpha, std::max(kGrid, static_cast<int>(w * scale)), std::max(kGrid, static_cast<int>(h * scale)));
    check(int64_t{image.width} * image.height <= kLargest, "a reference of {}x{} is too large to be used", w, h);
    return centre_crop(image, image.width / kGrid * kGrid, image.height / kGrid * kGrid);
  }
  check(pixels <= kLargest, "a reference of {}x{} is too large to be used without resizing", w, h);
  return to_rgb(centre_crop(picture, w / kGrid * kGrid, h / kGrid * kGrid), alpha);
}

}  // namespace flux2
