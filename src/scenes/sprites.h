#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "image/image.h"
#include "scenes/words.h"

namespace flux2 {

// Small pictures of things with transparency, all squares of the same size, and the words for them.
class SpriteSheet {
 public:
  SpriteSheet() = default;  // without things

  // A PNG with the sprites row by row, and beside it a text file of the same name (.txt): one line for each sprite in order, the
  // name first, then other words for it after "|". Lines that begin with # and empty lines do not count. Throws BadFile if the
  // two do not belong together.
  explicit SpriteSheet(const std::filesystem::path& png);

  int count() const { return static_cast<int>(sprites_.size()); }
  const Words& words(int thing) const { return words_.at(static_cast<size_t>(thing)); }

  // The sprite in full size, and halved until it is at most 1.5 times as large as `pixels`. Colours are premultiplied with alpha.
  const Image& sprite(int thing, float pixels) const;

 private:
  std::vector<std::vector<Image>> sprites_;  // each with its smaller copies
  std::vector<Words> words_;
};

}  // namespace flux2
