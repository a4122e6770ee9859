#include "pipeline/tiles.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr int64_t kPixels = 16;  // of a position

// The start of each tile along one axis, evenly spaced, so that no tile is very narrow.
std::vector<int64_t> starts(int64_t length, int64_t side) {
  if (length <= side) return {0};
  const int64_t count = (length - kTileOverlap + side - kTileOverlap - 1) / (side - kTileOverlap);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < count; ++i) at.push_back(i * (length - side) / (count - 1));
  return at;
}

// How much each of the pixels of a tile counts, or with `each` = 1 each of its positions: less and less towards an edge behind
// which the picture goes on.
std::vector<float> fading(int64_t begin, int64_t size, int64_t length, int64_t each) {
  const int64_t pixels = size * each, ramp = kTileOverlap * each;
  std::vector<float> weight(static_cast<size_t>(pixels), 1.0f);
  for (int64_t i = 0; i < std::min(ramp, pixels); ++i) {
    const float w = (static_cast<float>(i) + 0.5f) / static_cast<float>(ramp);
    auto &head = weight[static_cast<size_t>(i)], &tail = weight[static_cast<size_t>(pixels - 1 - i)];
    if (begin > 0) head = std::min(head, w);
    if (begin + size < length) tail = std::min(tail, w);
  }
  return weight;
}

}  // namespace

std::vector<Tile> tiles_of(int64_t rows, int64_t columns, int64_t side) {
  check(side >= kSmallestTile, "a tile of {} positions is too small; the minimum is {}", side, kSmallestTile);
  std::vector<Tile> tiles;
  for (int64_t r : starts(rows, side))
    for (int64_t c : starts(columns, side)) tiles.push_back({r, c, std::min(side, rows), std::min(side, columns)});
  return tiles;
}

Planes join_tiles(int64_t rows, int64_t columns, const std::vector<Tile>& tiles,
                  const std::function<Planes(const Tile&)>& decode) {
  const int64_t height = rows * kPixels, width = columns * kPixels, plane = height * width;
  Planes picture{static_cast<int>(width), static_cast<int>(height), std::vector<float>(static_cast<size_t>(3 * plane))};
  std::vector<float> total(static_cast<size_t>(plane));
  for (const Tile& tile : tiles) {
    const Planes part = decode(tile);
    const auto down = fading(tile.row, tile.rows, rows, kPixels), across = fading(tile.column, tile.columns, columns, kPixels);
    for (int64_t y = 0; y < part.height; ++y)
      for (int64_t x = 0; x < part.width; ++x) {
        const float w = down[static_cast<size_t>(y)] * across[static_cast<size_t>(x)];
        const int64_t to = (tile.row * kPixels + y) * width + tile.column * kPixels + x, from = y * part.width + x;
        total[static_cast<size_t>(to)] += w;
        for (int64_t c = 0; c < 3; ++c)
          picture.values[static_cast<size_t>(c * plane + to)] +=
              w * part.values[static_cast<size_t>(c * part.height * part.width + from)];
      }
  }
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < plane; ++i) picture.values[static_cast<size_t>(c * plane + i)] /= total[static_cast<size_t>(i)];
  return picture;
}

std::vector<float> join_token_tiles(int64_t rows, int64_t columns, int64_t channels, const std::vector<Tile>& tiles,
                                    const std::function<std::vector<float>(const Tile&)>& encode) {
  std::vector<float> tokens(static_cast<size_t>(rows * columns * channels)), total(static_cast<size_t>(rows * columns));
  for (const Tile& tile : tiles) {
    const std::vector<float> part = encode(tile);
    const auto down = fading(tile.row, tile.rows, rows, 1), across = fading(tile.column, tile.columns, columns, 1);
    for (int64_t y = 0; y < tile.rows; ++y)
      for (int64_t x = 0; x < tile.columns; ++x) {
        const float w = down[static_cast<size_t>(y)] * across[static_cast<size_t>(x)];
        const int64_t to = (tile.row + y) * columns + tile.column + x, from = y * tile.columns + x;
        total[static_cast<size_t>(to)] += w;
        for (int64_t c = 0; c < channels; ++c)
          tokens[static_cast<size_t>(to * channels + c)] += w * part[static_cast<size_t>(from * channels + c)];
      }
  }
  for (int64_t i = 0; i < rows * columns; ++i)
    for (int64_t c = 0; c < channels; ++c) tokens[static_cast<size_t>(i * channels + c)] /= total[static_cast<size_t>(i)];
  return tokens;
}

int64_t smaller_tile(int64_t side, int64_t rows, int64_t columns) {
  const int64_t whole = std::max(rows, columns), used = side == 0 ? whole : std::min(side, whole);
  if (used > kDecodeTile) return kDecodeTile;
  return used <= kSmallestTile ? 0 : std::max(kSmallestTile, used / 2);
}

}  // namespace flux2
