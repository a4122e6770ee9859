#pragma once

#include <span>
#include <string>
#include <vector>

#include "image/image.h"

namespace flux2 {

// A table of pictures with a label for each row and column. Labels may be empty; an empty picture leaves its place blank.
struct SheetBlock {
  std::string title;
  std::vector<std::string> columns, rows;
  std::vector<Image> cells;  // [rows][columns], RGB
};

struct SheetPlace {
  int left = 0, top = 0, width = 0, height = 0;
};

struct Sheet {
  Image image;                     // RGB, black on white
  std::vector<SheetPlace> places;  // of the cells, block after block
};

// Blocks stand below each other. Pictures larger than `cell` on their longest side are reduced to it and then, where the
// sheet would still be larger than `most` on a side, all of them further.
Sheet make_sheet(std::span<const SheetBlock> blocks, int cell, int most = 16384);

}  // namespace flux2
