#include "image/sixel.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "image/palette.h"

namespace flux2 {

namespace {

constexpr int kBandRows = 6;

// One colour's share of a band: a character a column, equal ones counted.
void append_columns(std::string& out, const std::vector<uint8_t>& columns) {
  for (size_t x = 0; x < columns.size();) {
    size_t end = x;
    while (end < columns.size() && columns[end] == columns[x]) ++end;
    const char sixel = static_cast<char>('?' + columns[x]);
    if (end - x > 3) {
      fmt::format_to(std::back_inserter(out), "!{}{}", end - x, sixel);
    } else {
      out.append(end - x, sixel);
    }
    x = end;
  }
}

}  // namespace

std::string encode_sixel(const Image& rgb) {
  const PaletteImage picture = reduce_colours(rgb);
  const auto width = static_cast<size_t>(picture.width);
  std::string out = fmt::format("\x1bP0;1;0q\"1;1;{};{}", picture.width, picture.height);
  for (size_t i = 0; i < picture.colours.size(); ++i) {
    const auto percent = [&](size_t c) { return (picture.colours[i][c] * 100 + 127) / 255; };
    fmt::format_to(std::back_inserter(out), "#{};2;{};{};{}", i, percent(0), percent(1), percent(2));
  }
  std::vector<std::vector<uint8_t>> bits(picture.colours.size());
  for (int top = 0; top < picture.height; top += kBandRows) {
    for (auto& columns : bits) columns.clear();
    for (int row = 0; row < std::min(kBandRows, picture.height - top); ++row) {
      const uint8_t* indices = picture.indices.data() + static_cast<size_t>(top + row) * width;
      for (size_t x = 0; x < width; ++x) {
        auto& columns = bits[indices[x]];
        if (columns.size() <= x) columns.resize(x + 1);  // nothing is written right of a colour's last pixel
        columns[x] = static_cast<uint8_t>(columns[x] | 1 << row);
      }
    }
    for (size_t i = 0; i < bits.size(); ++i) {
      if (bits[i].empty()) continue;
      fmt::format_to(std::back_inserter(out), "#{}", i);
      append_columns(out, bits[i]);
      out += '$';
    }
    out.back() = '-';  // the last return to the band's start becomes a step to the next band
  }
  return out + "\x1b\\";
}

}  // namespace flux2
