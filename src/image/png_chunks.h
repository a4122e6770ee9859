#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace flux2 {

using TextEntries = std::vector<std::pair<std::string, std::string>>;  // keyword, text; both UTF-8

// Calls visit(type, data) for every chunk of a PNG file that is whole and passes its checksum.
void for_each_png_chunk(std::span<const std::byte> bytes,
                        const std::function<void(std::string_view, std::span<const std::byte>)>& visit);

// All text chunks (tEXt, zTXt, iTXt) in file order. Together they unfold to at most `max_bytes`; what goes beyond is left out.
// Bytes that are unfolded for nothing are limited in the same way, so a file with many such chunks takes no time either.
TextEntries read_png_text(std::span<const std::byte> bytes, size_t max_bytes = ImageLimits{}.metadata_bytes);

// The content of a zlib stream. Nothing when it is damaged or larger than `limit`. Every byte that is unfolded is taken off
// `work`; nothing is unfolded when that is used up.
std::optional<std::string> inflated(std::string_view compressed, size_t limit, size_t& work);

struct PngChunk {
  char type[5];
  std::string data;
};

// tEXt when keyword and text fit Latin-1, else iTXt. The keyword has 1…79 bytes and neither holds a zero byte.
PngChunk make_text_chunk(const std::string& keyword, const std::string& text);

}  // namespace flux2
