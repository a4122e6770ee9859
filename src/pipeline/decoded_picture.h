#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "image/image.h"
#include "image/pixels.h"
#include "tensor/tensor.h"

namespace flux2 {

// An image as the autoencoder sees it: three planes of height × width samples, [−1, 1] but not clamped.
struct Planes {
  int width = 0, height = 0;
  std::vector<float> values;
};

std::shared_ptr<const Planes> planes_of(const Image& rgb);

// The output of the autoencoder. On a GPU it stays there and is converted on the device, so only a quarter of the bytes is copied
// to the host, and nothing is copied twice.
class DecodedPicture {
 public:
  DecodedPicture() = default;
  explicit DecodedPicture(const Tensor& picture);  // [1, H, W, 3]; its memory may change afterwards
  explicit DecodedPicture(Planes planes);

  int width() const { return width_; }
  int height() const { return height_; }
  const Planes& planes() const;
  Image rgb8(Rounding rounding) const;

  bool has_nan() const;
  bool is_black() const;  // when truncated to 8 bits

 private:
  const Image& truncated() const;

  Tensor on_device_;  // F32 [1, H, W, 3]; undefined when the planes are all there is
  int width_ = 0, height_ = 0;
  mutable std::optional<Planes> planes_;
  mutable std::optional<Image> truncated_;
};

}  // namespace flux2
