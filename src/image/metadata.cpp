#include "image/metadata.h"

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "image/embedded.h"
#include "image/exif.h"
#include "image/png_chunks.h"
#include "image/text_encoding.h"

namespace flux2 {

const std::string* ImageMetadata::find_text(std::string_view keyword) const {
  const auto found = std::find_if(text.begin(), text.end(), [&](const auto& entry) { return entry.first == keyword; });
  return found == text.end() ? nullptr : &found->second;
}

ImageMetadata read_metadata(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const auto format = sniff_format(bytes);
  if (!format) fail(ErrorCode::BadFile, "not an image in a known format");
  check_limit("image-bytes", bytes.size(), limits.file_bytes, "the image file has {}");
  const Embedded embedded = find_embedded(bytes, *format, limits);
  Exif exif = parse_exif(embedded.exif);
  ImageMetadata metadata;
  metadata.exif_comment = std::move(exif.comment);
  metadata.software = std::move(exif.software);
  metadata.make = std::move(exif.make);
  metadata.xmp = any_to_utf8({reinterpret_cast<const char*>(embedded.xmp.data()), embedded.xmp.size()});
  if (*format == ImageFormat::Png) {
    for (auto& entry : read_png_text(bytes, limits.metadata_bytes)) {
      if (entry.first == kPngXmpKeyword) {
        metadata.xmp = std::move(entry.second);
      } else {
        metadata.text.push_back(std::move(entry));
      }
    }
  }
  return metadata;
}

std::vector<std::byte> exif_block(const ImageMetadata& metadata) {
  return build_exif({.make = metadata.make, .software = metadata.software, .comment = metadata.exif_comment});
}

ImageMetadata read_metadata(const std::filesystem::path& path, const ImageLimits& limits) {
  const auto file = MappedFile::open(path);
  return in_context("reading " + path.string(), [&] { return read_metadata(file->bytes(), limits); });
}

}  // namespace flux2
