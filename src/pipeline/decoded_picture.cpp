#include "pipeline/decoded_picture.h"

#include <algorithm>
#include <cmath>

#include "image/pixels.h"
#include "ops/arithmetic.h"
#include "ops/view.h"

namespace flux2 {

std::shared_ptr<const Planes> planes_of(const Image& rgb) {
  return std::make_shared<const Planes>(Planes{rgb.width, rgb.height, from_rgb8(rgb)});
}

namespace {

// As on the host (image/pixels.cpp), step by step, so that the bytes are the same.
Tensor levels(const Tensor& x, Rounding rounding) {
  if (rounding == Rounding::Trunc) return 127.5 * (1.0 + x);
  constexpr double kWhole = 0x1p23;  // a float that large has no fraction: adding it rounds, ties to even
  return -kWhole + (kWhole + 255.0 * (0.5 + 0.5 * x));
}

}  // namespace

DecodedPicture::DecodedPicture(Planes planes) : width_(planes.width), height_(planes.height), planes_(std::move(planes)) {}

DecodedPicture::DecodedPicture(const Tensor& picture)
    : width_(static_cast<int>(picture.dim(2))), height_(static_cast<int>(picture.dim(1))) {
  const Tensor f32 = Tensor::like(picture, DType::F32, picture.shape());
  f32.copy_from(picture);
  on_device_ = f32;
  if (picture.device().is_host()) planes(), on_device_ = {};
}

const Planes& DecodedPicture::planes() const {
  if (!planes_) planes_ = {width_, height_, permute(on_device_, {0, 3, 1, 2}).contiguous().to_floats()};
  return *planes_;
}

Image DecodedPicture::rgb8(Rounding rounding) const {
  if (rounding == Rounding::Trunc && truncated_) return *truncated_;
  if (!on_device_.defined()) return to_rgb8(planes_->values, height_, width_, rounding);
  const Tensor bytes = levels(on_device_, rounding).cast(DType::U8);
  Image image(width_, height_, 3);
  bytes.stream().download(image.pixels.data(), bytes.raw(), image.pixels.size());
  return image;
}

const Image& DecodedPicture::truncated() const {
  if (!truncated_) truncated_ = rgb8(Rounding::Trunc);
  return *truncated_;
}

bool DecodedPicture::has_nan() const {
  if (on_device_.defined()) {
    // x − x is zero but for infinities and what is no number; which of the two the host can tell.
    const bool odd = std::isnan(sum(on_device_ - on_device_).to_floats()[0]);
    if (!odd) return false;
  }
  return flux2::has_nan(planes().values);
}

bool DecodedPicture::is_black() const {
  if (!on_device_.defined()) return would_be_black(planes_->values);
  const auto& pixels = truncated().pixels;
  return std::all_of(pixels.begin(), pixels.end(), [](uint8_t v) { return v == 0; });
}

}  // namespace flux2
