#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "image/format.h"
#include "image/image.h"
#include "image/metadata.h"

namespace flux2 {

// 0…9. Files of level 6 are not smaller, and take three times as long: at 1024x1024 longer than making the image on a fast GPU.
inline constexpr int kPngCompression = 4;

struct WriteOptions {
  int quality = 95;  // 1…100, JPEG and WebP
  int compression_level = kPngCompression;
};

// Where metadata goes: PNG has the texts (before the pixels), XMP and EXIF; JPEG and WebP have EXIF and XMP, no texts;
// PPM has nothing. A format that cannot hold transparency shows it over white. BMP is not written.
std::vector<std::byte> encode_image(const Image& image, ImageFormat format, const ImageMetadata& metadata = {},
                                    const WriteOptions& options = {});

std::vector<std::byte> encode_png(const Image& image, const ImageMetadata& metadata = {},
                                  int compression_level = kPngCompression);
// Colour is stored at full resolution above quality 90, at half below. A metadata block must fit 64 KiB.
std::vector<std::byte> encode_jpeg(const Image& image, const ImageMetadata& metadata = {}, int quality = 95);
std::vector<std::byte> encode_ppm(const Image& image);  // P6, or P5 for grey

// The file appears under its name only when complete.
void save_image(const std::filesystem::path& path, std::span<const std::byte> encoded);

}  // namespace flux2
