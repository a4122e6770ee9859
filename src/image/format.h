#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

enum class ImageFormat { Png, Jpeg, WebP, Ppm, Bmp };

const char* name_of(ImageFormat format);  // "png", "jpg", … : also the usual file extension

// What the content says, whatever the file is called.
std::optional<ImageFormat> sniff_format(std::span<const std::byte> bytes);

// "jpg", ".JPG" or "folder/image.jpg" → the format to write. Throws InvalidArgument, naming what this build writes,
// for one that is unknown or left out of the build.
ImageFormat format_from_name(std::string_view name);

std::vector<ImageFormat> readable_formats();
std::vector<ImageFormat> available_formats();  // those that can be written

}  // namespace flux2
