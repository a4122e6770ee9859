#include "image/codecs.h"

#include <webp/decode.h>
#include <webp/encode.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "image/webp_container.h"

namespace flux2 {

namespace {

struct WebpFree {
  void operator()(uint8_t* data) const { WebPFree(data); }
};

}  // namespace

bool webp_available() { return true; }

Image decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) {
    fail(ErrorCode::BadFile, "WebP: the file is damaged or truncated");
  }
  if (features.has_animation) fail(ErrorCode::BadFile, "WebP: animations are not supported");
  check_image_size(features.width, features.height, limits);
  // The lossless decoder keeps the whole image in a form of its own.
  constexpr int kLossless = 2;
  if (features.format == kLossless)
    check_image_size(features.width, features.height, {.side = limits.side, .pixels = limits.pixels / 2});
  Image image(features.width, features.height, features.has_alpha ? 4 : 3);
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(data, bytes.size(), image.pixels.data(), image.pixels.size(), static_cast<int>(image.row_bytes()))) {
    fail(ErrorCode::BadFile, "WebP: the file is damaged or truncated");
  }
  return image;
}

std::vector<std::byte> encode_webp(const Image& image, const ImageMetadata& metadata, int quality) {
  check(quality >= 1 && quality <= 100, "WebP quality {} is not within 1…100", quality);
  check(std::max(image.width, image.height) <= WEBP_MAX_DIMENSION, "WebP allows at most {} pixels per side; the image is {}×{}",
        WEBP_MAX_DIMENSION, image.width, image.height);
  const Image expanded = image.channels == 1 ? to_rgb(image) : Image();
  const Image& shown = image.channels == 1 ? expanded : image;
  const auto encode = shown.channels == 4 ? WebPEncodeRGBA : WebPEncodeRGB;
  uint8_t* data = nullptr;
  const size_t size = encode(shown.pixels.data(), shown.width, shown.height, static_cast<int>(shown.row_bytes()),
                             static_cast<float>(quality), &data);
  const std::unique_ptr<uint8_t, WebpFree> owner(data);
  if (size == 0) fail(ErrorCode::OutOfMemory, "WebP: the image could not be encoded");
  const std::span encoded(reinterpret_cast<const std::byte*>(data), size);

  const auto exif = exif_block(metadata);
  if (exif.empty() && metadata.xmp.empty()) return {encoded.begin(), encoded.end()};
  return add_webp_metadata(encoded, {.width = shown.width,
                                     .height = shown.height,
                                     .has_alpha = shown.channels == 4,
                                     .exif = exif,
                                     .xmp = std::as_bytes(std::span(metadata.xmp))});
}

}  // namespace flux2
