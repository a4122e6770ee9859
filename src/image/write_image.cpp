#include "image/write_image.h"

#include "base/atomic_file.h"
#include "base/error.h"
#include "image/codecs.h"

namespace flux2 {

std::vector<std::byte> encode_image(const Image& image, ImageFormat format, const ImageMetadata& metadata,
                                    const WriteOptions& options) {
  switch (format) {
    case ImageFormat::Png: return encode_png(image, metadata, options.compression_level);
    case ImageFormat::Jpeg: return encode_jpeg(image, metadata, options.quality);
    case ImageFormat::WebP: return encode_webp(image, metadata, options.quality);
    case ImageFormat::Ppm: return encode_ppm(image);
    case ImageFormat::Bmp: break;
  }
  fail(ErrorCode::InvalidArgument, "images cannot be written as {}", name_of(format));
}

std::vector<std::byte> encode_ppm(const Image& image) {
  const Image shown = image.channels == 4 ? to_rgb(image) : image;
  const std::string header = fmt::format("P{}\n{} {}\n255\n", shown.channels == 1 ? 5 : 6, shown.width, shown.height);
  const auto head = std::as_bytes(std::span(header)), body = std::as_bytes(std::span(shown.pixels));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

void save_image(const std::filesystem::path& path, std::span<const std::byte> encoded) {
  AtomicFile file(path);
  file.write(encoded);
  file.commit();
}

}  // namespace flux2
