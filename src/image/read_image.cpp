#include "image/read_image.h"

#include "base/error.h"
#include "base/mapped_file.h"
#include "image/codecs.h"
#include "image/colour_profile.h"
#include "image/embedded.h"
#include "image/exif.h"
#include "image/format.h"

namespace flux2 {

namespace {

Image decode(std::span<const std::byte> bytes, ImageFormat format, const ImageLimits& limits) {
  switch (format) {
    case ImageFormat::Png: return decode_png(bytes, limits);
    case ImageFormat::Jpeg: return decode_jpeg(bytes, limits);
    case ImageFormat::WebP: return decode_webp(bytes, limits);
    case ImageFormat::Ppm: return decode_pnm(bytes, limits);
    case ImageFormat::Bmp: return decode_bmp(bytes, limits);
  }
  fail(ErrorCode::Internal, "no decoder for this format");
}

void apply_profile(Image& image, std::span<const std::byte> profile, const Log& log) {
  switch (convert_to_srgb(image, profile)) {
    case ProfileUse::None:
    case ProfileUse::Converted: return;
    case ProfileUse::Unsupported:
      return log.warn("the colour profile of the image is damaged or not RGB; its colours are treated as sRGB");
    case ProfileUse::NotBuilt:
      return log.warn("the image has a colour profile, but this build has no lcms2; its colours are treated as sRGB");
  }
}

}  // namespace

Image read_image(std::span<const std::byte> bytes, const ReadOptions& options) {
  const auto format = sniff_format(bytes);
  if (!format) {
    throw Error(ErrorCode::BadFile, bytes.empty() ? "the file is empty" : "not an image in a known format",
                "PNG, JPEG, BMP, PPM and, where built in, WebP can be read");
  }
  check_limit("image-bytes", bytes.size(), options.limits.file_bytes, "the image file has {}");
  Image image = decode(bytes, *format, options.limits);
  if (!options.apply_orientation && !options.to_srgb) return image;
  const Embedded embedded = find_embedded(bytes, *format, options.limits);
  if (options.to_srgb && !embedded.icc.empty()) apply_profile(image, icc_profile(embedded, *format, options.limits), options.log);
  if (!options.apply_orientation) return image;
  return apply_orientation(std::move(image), parse_exif(embedded.exif).orientation);
}

Image read_image(const std::filesystem::path& path, const ReadOptions& options) {
  const auto file = MappedFile::open(path);
  return in_context("reading " + path.string(), [&] { return read_image(file->bytes(), options); });
}

}  // namespace flux2
