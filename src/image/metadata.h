#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace flux2 {

// The metadata of an image file, all UTF-8; empty means absent.
struct ImageMetadata {
  std::vector<std::pair<std::string, std::string>> text;  // PNG text chunks in file order; other formats have none
  std::string exif_comment;                               // EXIF UserComment
  std::string xmp;                                        // XMP packet
  std::string software, make;                             // EXIF Software and Make

  // The first text under this keyword, or nothing.
  const std::string* find_text(std::string_view keyword) const;
  bool operator==(const ImageMetadata&) const = default;
};

// Reads what write_image.h writes and what other programs write: PNG text chunks of every kind, EXIF and XMP of PNG,
// JPEG and WebP (which needs no WebP in the build). Formats without metadata give an empty answer, and so do damaged
// blocks and what is over the limits; a file that is no image throws BadFile.
ImageMetadata read_metadata(const std::filesystem::path& path, const ImageLimits& limits = {});
ImageMetadata read_metadata(std::span<const std::byte> bytes, const ImageLimits& limits = {});

// Comment, software and make as an EXIF block; empty when there are none.
std::vector<std::byte> exif_block(const ImageMetadata& metadata);

}  // namespace flux2
