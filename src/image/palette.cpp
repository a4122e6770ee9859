#include "image/palette.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

// Colours are counted in 32³ cells; a cell remembers the sum of what fell into it, so averages stay exact.
constexpr int kCellBits = 5, kCells = 1 << (3 * kCellBits);

int cell_of(int r, int g, int b) {
  constexpr int drop = 8 - kCellBits;
  return (r >> drop) << (2 * kCellBits) | (g >> drop) << kCellBits | b >> drop;
}

struct Cell {
  uint64_t count = 0;
  std::array<uint64_t, 3> sum{};
  int mean(int channel) const { return static_cast<int>((sum[channel] + count / 2) / count); }
};

// A run of cells that will share one colour.
struct Box {
  size_t begin, end;
  uint64_t count = 0;
  int axis = 0, extent = 0;  // the channel that varies most and by how much
};

Box measure(const std::vector<Cell>& cells, size_t begin, size_t end) {
  Box box{begin, end};
  for (size_t i = begin; i < end; ++i) box.count += cells[i].count;
  for (int c = 0; c < 3; ++c) {
    const auto less = [c](const Cell& a, const Cell& b) { return a.mean(c) < b.mean(c); };
    const auto [low, high] = std::minmax_element(cells.begin() + begin, cells.begin() + end, less);
    if (high->mean(c) - low->mean(c) > box.extent) box.extent = high->mean(c) - low->mean(c), box.axis = c;
  }
  return box;
}

std::vector<std::array<uint8_t, 3>> median_cut(const Image& rgb, size_t max_colours) {
  std::vector<Cell> cells(kCells);
  for (size_t i = 0; i < rgb.pixels.size(); i += 3) {
    const uint8_t* p = &rgb.pixels[i];
    Cell& cell = cells[cell_of(p[0], p[1], p[2])];
    ++cell.count;
    for (int c = 0; c < 3; ++c) cell.sum[c] += p[c];
  }
  std::erase_if(cells, [](const Cell& cell) { return cell.count == 0; });

  std::vector<Box> boxes = {measure(cells, 0, cells.size())};
  while (boxes.size() < max_colours) {
    const auto weight = [](const Box& box) { return box.count * static_cast<uint64_t>(box.extent); };
    const auto widest = std::max_element(boxes.begin(), boxes.end(), [&](auto& a, auto& b) { return weight(a) < weight(b); });
    if (weight(*widest) == 0) break;
    const Box box = *widest;
    std::sort(cells.begin() + box.begin, cells.begin() + box.end,
              [&](const Cell& a, const Cell& b) { return a.mean(box.axis) < b.mean(box.axis); });
    size_t middle = box.begin;
    for (uint64_t seen = 0; middle < box.end - 1 && (middle == box.begin || seen + cells[middle].count <= box.count / 2);
         ++middle) {
      seen += cells[middle].count;
    }
    *widest = measure(cells, box.begin, middle);
    boxes.push_back(measure(cells, middle, box.end));
  }

  std::vector<std::array<uint8_t, 3>> colours;
  for (const Box& box : boxes) {
    Cell all;
    for (size_t i = box.begin; i < box.end; ++i) {
      all.count += cells[i].count;
      for (int c = 0; c < 3; ++c) all.sum[c] += cells[i].sum[c];
    }
    colours.push_back({static_cast<uint8_t>(all.mean(0)), static_cast<uint8_t>(all.mean(1)), static_cast<uint8_t>(all.mean(2))});
  }
  return colours;
}

// The nearest colour, remembered for each cell.
class NearestColour {
 public:
  explicit NearestColour(const std::vector<std::array<uint8_t, 3>>& colours) : colours_(colours), known_(kCells, -1) {}

  uint8_t operator()(const std::array<int, 3>& wanted) {
    int16_t& index = known_[static_cast<size_t>(cell_of(wanted[0], wanted[1], wanted[2]))];
    if (index < 0) index = search(wanted);
    return static_cast<uint8_t>(index);
  }

 private:
  int16_t search(const std::array<int, 3>& wanted) const {
    size_t best = 0;
    int best_distance = 1 << 30;
    for (size_t i = 0; i < colours_.size(); ++i) {
      int distance = 0;
      for (size_t c = 0; c < 3; ++c) distance += (colours_[i][c] - wanted[c]) * (colours_[i][c] - wanted[c]);
      if (distance < best_distance) best_distance = distance, best = i;
    }
    return static_cast<int16_t>(best);
  }

  const std::vector<std::array<uint8_t, 3>>& colours_;
  std::vector<int16_t> known_;
};

}  // namespace

PaletteImage reduce_colours(const Image& rgb, int max_colours) {
  require(rgb.channels == 3, "reduce_colours: the image has {} channels", rgb.channels);
  require(max_colours >= 2 && max_colours <= 256, "reduce_colours: {} colours", max_colours);
  PaletteImage result{rgb.width, rgb.height, median_cut(rgb, static_cast<size_t>(max_colours)), {}};
  result.indices.resize(static_cast<size_t>(rgb.width) * static_cast<size_t>(rgb.height));
  NearestColour nearest(result.colours);

  // Errors in sixteenths, with one pixel of margin on both sides.
  std::vector<std::array<int, 3>> here(static_cast<size_t>(rgb.width) + 2), below(here.size());
  for (int y = 0; y < rgb.height; ++y) {
    std::fill(below.begin(), below.end(), std::array<int, 3>{});
    for (int x = 0; x < rgb.width; ++x) {
      const size_t at = static_cast<size_t>(x) + 1;
      std::array<int, 3> wanted;
      for (size_t c = 0; c < 3; ++c) wanted[c] = std::clamp(rgb.at(x, y)[c] + here[at][c] / 16, 0, 255);
      const uint8_t index = nearest(wanted);
      result.indices[static_cast<size_t>(y) * static_cast<size_t>(rgb.width) + static_cast<size_t>(x)] = index;
      for (size_t c = 0; c < 3; ++c) {
        const int error = wanted[c] - result.colours[index][c];
        here[at + 1][c] += 7 * error;
        below[at - 1][c] += 3 * error;
        below[at][c] += 5 * error;
        below[at + 1][c] += error;
      }
    }
    std::swap(here, below);
  }
  return result;
}

}  // namespace flux2
