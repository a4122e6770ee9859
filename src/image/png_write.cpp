#include "image/embedded.h"
#include "image/png_chunks.h"
#include "image/png_codec.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

void append(png_structp png, png_bytep data, size_t size) {
  auto* out = static_cast<std::vector<std::byte>*>(png_get_io_ptr(png));
  bool stored = true;
  try {
    const auto* from = reinterpret_cast<const std::byte*>(data);
    out->insert(out->end(), from, from + size);
  } catch (...) {
    stored = false;
  }
  if (!stored) png_error(png, "no memory for the file");  // outside the handler: png_error jumps
}

}  // namespace

std::vector<std::byte> encode_png(const Image& image, const ImageMetadata& metadata, int compression_level) {
  check(compression_level >= 0 && compression_level <= 9, "PNG compression level {} is not within 0…9", compression_level);
  std::vector<PngChunk> chunks;
  for (const auto& [keyword, text] : metadata.text) chunks.push_back(make_text_chunk(keyword, text));
  if (!metadata.xmp.empty()) chunks.push_back({"iTXt", kPngXmpKeyword + std::string(5, '\0') + metadata.xmp});
  const auto exif = exif_block(metadata);
  if (!exif.empty()) chunks.push_back({"eXIf", {reinterpret_cast<const char*>(exif.data()), exif.size()}});

  const int colour = image.channels == 1 ? PNG_COLOR_TYPE_GRAY : image.channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_RGBA;
  std::vector<std::byte> bytes;
  PngCodec codec(PngCodec::Use::Write);
  png_structp png = codec.png();
  codec.run([&] {
    png_set_write_fn(png, &bytes, append, nullptr);
    png_set_compression_level(png, compression_level);
    png_set_IHDR(png, codec.info(), static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8, colour,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, codec.info());
    for (const PngChunk& chunk : chunks) {
      png_write_chunk(png, reinterpret_cast<png_const_bytep>(chunk.type), reinterpret_cast<png_const_bytep>(chunk.data.data()),
                      chunk.data.size());
    }
    for (int y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
    png_write_end(png, nullptr);
  });
  return bytes;
}

}  // namespace flux2
