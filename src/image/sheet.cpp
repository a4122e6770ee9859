#include "image/sheet.h"

#include <algorithm>

#include "base/error.h"
#include "image/letters.h"
#include "image/resize.h"

namespace flux2 {

namespace {

constexpr int kGap = 8;            // between pictures, and around
constexpr int kLongestLabel = 12;  // lines
constexpr int kSmallestCell = 16;

// Everything in pixels.
struct Layout {
  int cell_width = 1, cell_height = 1;  // the largest picture
  int scale = 1;                        // of letters
  int row_labels = 0;                   // width of the column of labels
  int width = 0, height = 0;
  std::vector<int> block_tops, title_heights, header_heights;

  int column_left(size_t column) const { return kGap + row_labels + static_cast<int>(column) * (cell_width + kGap); }
};

std::vector<std::string> label_lines(const std::string& text, int width, int scale) {
  auto lines = wrapped_text(text, width / (kLetterWidth * scale));
  if (static_cast<int>(lines.size()) > kLongestLabel) {
    lines.resize(kLongestLabel);
    lines.back() += " ...";
  }
  return lines;
}

int height_of(size_t lines, int scale) { return lines == 0 ? 0 : static_cast<int>(lines) * kLineHeight * scale + kGap; }

Image reduced(const Image& image, int cell) {
  const int longest = std::max(image.width, image.height);
  if (longest <= cell) return image;
  const auto side = [&](int s) { return std::max(1, static_cast<int>((int64_t{s} * cell + longest / 2) / longest)); };
  return resize(image, side(image.width), side(image.height));
}

Layout lay_out(std::span<const SheetBlock> blocks, int cell) {
  Layout l;
  size_t columns = 0, longest_label = 0;
  for (const SheetBlock& block : blocks) {
    columns = std::max(columns, block.columns.size());
    for (const std::string& label : block.rows) longest_label = std::max(longest_label, label.size());
    for (const Image& image : block.cells) {
      const int longest = std::max({1, image.width, image.height});
      const double scale = std::min(1.0, static_cast<double>(cell) / longest);
      l.cell_width = std::max(l.cell_width, static_cast<int>(image.width * scale + 0.5));
      l.cell_height = std::max(l.cell_height, static_cast<int>(image.height * scale + 0.5));
    }
  }
  l.scale = std::clamp(l.cell_width / 192, 1, 6);
  if (longest_label > 0)
    l.row_labels = kGap + std::min(static_cast<int>(std::min<size_t>(longest_label, 200)) * kLetterWidth * l.scale,
                                   std::max(l.cell_width, 8 * kLetterWidth * l.scale));
  l.width = l.column_left(columns);
  l.height = kGap;
  for (const SheetBlock& block : blocks) {
    l.block_tops.push_back(l.height);
    l.title_heights.push_back(height_of(label_lines(block.title, l.width - 2 * kGap, l.scale).size(), l.scale));
    size_t lines = 0;
    for (const std::string& label : block.columns) lines = std::max(lines, label_lines(label, l.cell_width, l.scale).size());
    l.header_heights.push_back(height_of(lines, l.scale));
    l.height += l.title_heights.back() + l.header_heights.back() + static_cast<int>(block.rows.size()) * (l.cell_height + kGap);
  }
  return l;
}

void draw_label(Image& sheet, const std::string& text, int left, int top, int width, int scale) {
  for (const std::string& line : label_lines(text, width, scale)) {
    draw_text(sheet, left, top, line, scale);
    top += kLineHeight * scale;
  }
}

void paste(Image& sheet, const Image& picture, const SheetPlace& place) {
  for (int y = 0; y < picture.height; ++y) std::copy_n(picture.row(y), picture.row_bytes(), sheet.at(place.left, place.top + y));
}

}  // namespace

Sheet make_sheet(std::span<const SheetBlock> blocks, int cell, int most) {
  require(!blocks.empty(), "a sheet without images");
  for (const SheetBlock& block : blocks) {
    require(block.cells.size() == block.rows.size() * block.columns.size(), "a sheet of {}×{} with {} images", block.rows.size(),
            block.columns.size(), block.cells.size());
    for (const Image& image : block.cells) require(image.width == 0 || image.channels == 3, "a sheet is made of RGB images");
  }
  Layout l = lay_out(blocks, cell);
  while (std::max(l.width, l.height) > most && cell > kSmallestCell) {
    cell = std::max(kSmallestCell, std::min(cell, std::max(l.cell_width, l.cell_height)) * 9 / 10);
    l = lay_out(blocks, cell);
  }
  Sheet sheet{Image(l.width, l.height, 3), {}};
  std::fill(sheet.image.pixels.begin(), sheet.image.pixels.end(), uint8_t{255});
  for (size_t b = 0; b < blocks.size(); ++b) {
    const SheetBlock& block = blocks[b];
    draw_label(sheet.image, block.title, kGap, l.block_tops[b], l.width - 2 * kGap, l.scale);
    const int header = l.block_tops[b] + l.title_heights[b], first = header + l.header_heights[b];
    for (size_t c = 0; c < block.columns.size(); ++c)
      draw_label(sheet.image, block.columns[c], l.column_left(c), header, l.cell_width, l.scale);
    for (size_t r = 0; r < block.rows.size(); ++r) {
      const int top = first + static_cast<int>(r) * (l.cell_height + kGap);
      draw_label(sheet.image, block.rows[r], kGap, top, l.row_labels - kGap, l.scale);
      for (size_t c = 0; c < block.columns.size(); ++c) {
        const Image& picture = block.cells[r * block.columns.size() + c];
        const Image shown = picture.width == 0 ? Image{} : reduced(picture, cell);
        sheet.places.push_back({l.column_left(c), top, shown.width, shown.height});
        paste(sheet.image, shown, sheet.places.back());
      }
    }
  }
  return sheet;
}

}  // namespace flux2
