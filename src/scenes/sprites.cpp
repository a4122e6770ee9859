#include "scenes/sprites.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "image/read_image.h"

namespace flux2 {

namespace {

std::vector<Words> read_words(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file)
    fail(ErrorCode::NotFound, "{} does not exist; it must name the things of the sheet, one on each line", path.string());
  std::vector<Words> lists;
  for (std::string line; std::getline(file, line);) {
    if (trimmed(line).empty() || line[0] == '#') continue;
    Words words;
    for (size_t start = 0; start <= line.size();) {
      const size_t bar = std::min(line.find('|', start), line.size());
      const std::string word(trimmed(std::string_view(line).substr(start, bar - start)));
      if (word.empty()) fail(ErrorCode::BadFile, "{}: \"{}\" has an empty word", path.string(), printable(line));
      words.push_back(word);
      start = bar + 1;
    }
    lists.push_back(std::move(words));
  }
  if (lists.empty()) fail(ErrorCode::BadFile, "{} names no things", path.string());
  return lists;
}

void premultiply(Image& image) {
  for (size_t i = 0; i < image.pixels.size(); i += 4)
    for (size_t c = 0; c < 3; ++c) image.pixels[i + c] = mul_div_255(image.pixels[i + c], image.pixels[i + 3]);
}

Image halved(const Image& image) {
  Image half(image.width / 2, image.height / 2, 4);
  for (int y = 0; y < half.height; ++y)
    for (int x = 0; x < half.width; ++x)
      for (int c = 0; c < 4; ++c) {
        const int sum = image.at(2 * x, 2 * y)[c] + image.at(2 * x + 1, 2 * y)[c] + image.at(2 * x, 2 * y + 1)[c] +
                        image.at(2 * x + 1, 2 * y + 1)[c];
        half.at(x, y)[c] = static_cast<uint8_t>((sum + 2) / 4);
      }
  return half;
}

// The side of the sprites: the only one with which the sheet holds so many of them, the last row filled in part.
int side_of(const Image& sheet, int count) {
  for (int columns = 1; columns <= count; ++columns) {
    if (sheet.width % columns != 0) continue;
    const int side = sheet.width / columns, rows = (count + columns - 1) / columns;
    if (side * rows == sheet.height) return side;
  }
  return 0;
}

}  // namespace

SpriteSheet::SpriteSheet(const std::filesystem::path& png) {
  std::filesystem::path names = png;
  words_ = read_words(names.replace_extension(".txt"));
  const Image sheet = read_image(png);
  if (sheet.channels != 4) fail(ErrorCode::BadFile, "{} has no transparency", png.string());
  const int count = static_cast<int>(words_.size()), side = side_of(sheet, count);
  if (side < 8)
    fail(ErrorCode::BadFile, "{} has {}×{} pixels, which cannot be divided into the {} squares that {} names", png.string(),
         sheet.width, sheet.height, count, names.string());
  const int columns = sheet.width / side;
  for (int i = 0; i < count; ++i) {
    std::vector<Image> sizes = {crop(sheet, i % columns * side, i / columns * side, side, side)};
    premultiply(sizes[0]);
    while (sizes.back().width >= 16 && sizes.back().width % 2 == 0) sizes.push_back(halved(sizes.back()));
    sprites_.push_back(std::move(sizes));
  }
}

const Image& SpriteSheet::sprite(int thing, float pixels) const {
  const std::vector<Image>& sizes = sprites_.at(static_cast<size_t>(thing));
  size_t chosen = 0;
  while (chosen + 1 < sizes.size() && static_cast<float>(sizes[chosen].width) > 1.5f * pixels) ++chosen;
  return sizes[chosen];
}

}  // namespace flux2
