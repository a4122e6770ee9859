#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "image/image.h"

namespace flux2 {

enum class TerminalProtocol { None, Kitty, ITerm2, Sixel, HalfBlocks };

// The value of an environment variable, empty when it is not set.
using Environment = std::function<std::string(std::string_view name)>;

struct TerminalAbilities {
  bool sixel = false;             // the terminal's device attributes name sixel graphics
  bool tmux_passthrough = false;  // tmux lets wrapped sequences through
};

// The best way to show images in this terminal. Inside a tmux without pass-through, only half blocks work.
TerminalProtocol choose_protocol(const Environment& environment, const TerminalAbilities& abilities = {});

// "kitty", "iterm2", "sixel", "blocks" or "off"; anything else throws InvalidArgument.
TerminalProtocol protocol_from_name(std::string_view name);

struct TerminalView {
  int columns = 80;                      // of the window; no image is wider
  int cell_width = 8, cell_height = 16;  // in pixels
  int max_side = 0;                      // longest side in pixels, for previews; 0: no limit but the window
  bool tmux = false;                     // wrap sequences for pass-through
  uint32_t image_id = 0;                 // kitty: images of one id replace each other
  int replace_rows = 0;                  // go up this many rows first, to draw over the image before
};

struct TerminalPicture {
  std::string bytes;  // to be written to the terminal; the cursor ends at the start of the row below
  int rows = 0;       // its height
};

TerminalPicture show_image(const Image& image, TerminalProtocol protocol, const TerminalView& view);

}  // namespace flux2
