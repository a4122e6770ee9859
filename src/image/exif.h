#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// The few EXIF fields we use. Text is UTF-8; empty means absent.
struct Exif {
  int orientation = 1;  // 1…8
  std::string make, software;
  std::string comment;  // UserComment
};

// Reads a TIFF-structured EXIF block, with or without the "Exif\0\0" in front. From a damaged block it returns what could be
// read; a damaged block is never a reason to reject an image.
Exif parse_exif(std::span<const std::byte> block);

// A block in big-endian order without the "Exif\0\0": there, UTF-16 in the block's own order and in the order that
// readers of generation parameters expect are the same. Empty when there is nothing to say.
std::vector<std::byte> build_exif(const Exif& exif);

}  // namespace flux2
