#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace flux2 {

// The RIFF container of WebP, which needs no library.

// Calls visit(type, data) for every whole chunk; stops at the first fault.
void for_each_webp_chunk(std::span<const std::byte> bytes,
                         const std::function<void(std::string_view, std::span<const std::byte>)>& visit);

struct WebpExtras {
  int width, height;
  bool has_alpha;
  std::span<const std::byte> exif, xmp;
};

// The file of an encoder, in the extended layout, with the metadata added.
std::vector<std::byte> add_webp_metadata(std::span<const std::byte> encoded, const WebpExtras& extras);

}  // namespace flux2
