#include "image/format.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "image/codecs.h"

namespace flux2 {

const char* name_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::Png: return "png";
    case ImageFormat::Jpeg: return "jpg";
    case ImageFormat::WebP: return "webp";
    case ImageFormat::Ppm: return "ppm";
    case ImageFormat::Bmp: return "bmp";
  }
  return "unknown";
}

std::optional<ImageFormat> sniff_format(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return ImageFormat::Png;
  if (text.starts_with("\xff\xd8\xff")) return ImageFormat::Jpeg;
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) return ImageFormat::WebP;
  if (text.starts_with("BM")) return ImageFormat::Bmp;
  if (text.size() > 2 && text[0] == 'P' && std::string_view("2356").find(text[1]) != text.npos) return ImageFormat::Ppm;
  return std::nullopt;
}

ImageFormat format_from_name(std::string_view name) {
  std::string extension(name.substr(name.rfind('.') + 1));
  std::transform(extension.begin(), extension.end(), extension.begin(), [](unsigned char c) { return std::tolower(c); });
  if (extension == "jpeg" || extension == "jpe") extension = "jpg";
  if (extension == "pgm" || extension == "pnm") extension = "ppm";
  std::string offered;
  for (ImageFormat format : available_formats()) {
    if (extension == name_of(format)) return format;
    offered += (offered.empty() ? "" : ", ") + std::string(name_of(format));
  }
  fail(ErrorCode::InvalidArgument, "cannot write images as \"{}\"; this build writes {}", extension, offered);
}

std::vector<ImageFormat> readable_formats() {
  std::vector<ImageFormat> formats = available_formats();
  formats.push_back(ImageFormat::Bmp);
  return formats;
}

std::vector<ImageFormat> available_formats() {
  std::vector<ImageFormat> formats = {ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Ppm};
  if (webp_available()) formats.push_back(ImageFormat::WebP);
  return formats;
}

}  // namespace flux2
