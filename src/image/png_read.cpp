#include <algorithm>

#include "image/codecs.h"
#include "image/png_codec.h"

namespace flux2 {

namespace {

struct Source {
  std::span<const std::byte> rest;

  static void read(png_structp png, png_bytep to, size_t size) {
    auto* source = static_cast<Source*>(png_get_io_ptr(png));
    if (size > source->rest.size()) png_error(png, "the file is truncated");
    std::memcpy(to, source->rest.data(), size);
    source->rest = source->rest.subspan(size);
  }
};

// Everything becomes 8-bit grey, RGB or RGBA.
void expand_to_8_bit(png_structp png, png_infop info) {
  const int colour = png_get_color_type(png, info);
  const bool transparent = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  png_set_strip_16(png);
  png_set_expand(png);
  const bool grey = (colour & PNG_COLOR_MASK_COLOR) == 0;
  if (grey && ((colour & PNG_COLOR_MASK_ALPHA) || transparent)) png_set_gray_to_rgb(png);
}

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const ImageLimits& limits) {
  PngCodec codec(PngCodec::Use::Read);
  png_structp png = codec.png();
  png_infop info = codec.info();
  Source source{bytes};
  codec.run([&] {
    png_set_read_fn(png, &source, Source::read);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // ancillary ones are read elsewhere
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);                       // checked below, with our own words
    png_read_info(png, info);
  });
  const int64_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  check_image_size(width, height, limits);
  // Deflate compresses by a factor of at most 1032, so a small file that claims a huge image is rejected before memory is
  // allocated.
  if (static_cast<uint64_t>(png_get_rowbytes(png, info)) * static_cast<uint64_t>(height) / 1032 > bytes.size()) {
    fail(ErrorCode::BadFile, "PNG: the file is truncated: {} bytes for {}×{} pixels", bytes.size(), width, height);
  }
  codec.run([&] {
    expand_to_8_bit(png, info);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  Image image(static_cast<int>(width), static_cast<int>(height), png_get_channels(png, info));
  if (png_get_rowbytes(png, info) != image.row_bytes()) fail(ErrorCode::Internal, "PNG: unexpected row size");
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (int y = 0; y < image.height; ++y) rows[static_cast<size_t>(y)] = image.row(y);
  codec.run([&] {
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  });
  return image;
}

}  // namespace flux2
