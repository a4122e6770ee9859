#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/decode.h"

namespace flux2 {

// Part of the grid of latent positions, each 16 × 16 pixels.
struct Tile {
  int64_t row = 0, column = 0, rows = 0, columns = 0;
};

// The overlap of neighbouring tiles in positions, over which one fades into the other.
constexpr int64_t kTileOverlap = 4;

// The side of a tile when memory is short: 512 pixels.
constexpr int64_t kDecodeTile = 32;

// The smallest side of a tile: neighbours share half of it.
constexpr int64_t kSmallestTile = 2 * kTileOverlap;

// Tiles of at most `side` positions each way that cover a grid, neighbours sharing at least kTileOverlap positions. One tile
// when the grid is no larger than that.
std::vector<Tile> tiles_of(int64_t rows, int64_t columns, int64_t side);

// Assembles the image of a grid from the images of its tiles. A tile does not see beyond its own edge, so the result is close to
// the image decoded at once, but not equal. Memory use does not grow with the image.
Planes join_tiles(int64_t rows, int64_t columns, const std::vector<Tile>& tiles,
                  const std::function<Planes(const Tile&)>& decode);

// The same for encoding: tokens [rows · columns, channels] of a grid from those of its tiles.
std::vector<float> join_token_tiles(int64_t rows, int64_t columns, int64_t channels, const std::vector<Tile>& tiles,
                                    const std::function<std::vector<float>(const Tile&)>& encode);

// The side of the tiles to try after memory ran out with tiles of `side` (0: without tiles); 0 when there is nothing smaller.
int64_t smaller_tile(int64_t side, int64_t rows, int64_t columns);

}  // namespace flux2
