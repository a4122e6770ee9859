#pragma once

#include <span>
#include <string>
#include <vector>

#include "image/image.h"

namespace flux2 {

// A table of images with a label for each row and column. Labels may be empty; an empty image leaves its place blank.
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

// Blocks are placed below each other. Images whose longest side exceeds `cell` are scaled down to it. If a side of the sheet
// would still exceed `most`, all images are scaled down further.
Sheet make_sheet(std::span<const SheetBlock> blocks, int cell, int most = 16384);

}  // namespace flux2
