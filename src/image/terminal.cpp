#include "image/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "image/resize.h"
#include "image/sixel.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

constexpr size_t kKittyChunk = 4096;
constexpr int kFastCompression = 1;  // a picture on its way to the terminal is not kept

bool utf8_locale(const Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

TerminalProtocol text_protocol(const Environment& environment) {
  const std::string depth = environment("COLORTERM");
  const bool true_colour = depth == "truecolor" || depth == "24bit" || environment("TERM").ends_with("-direct");
  return true_colour && utf8_locale(environment) ? TerminalProtocol::HalfBlocks : TerminalProtocol::None;
}

std::optional<TerminalProtocol> graphics_protocol(const Environment& environment, bool sixel) {
  const auto set = [&](const char* name) { return !environment(name).empty(); };
  const std::string program = environment("TERM_PROGRAM");
  if (set("KITTY_WINDOW_ID") || environment("TERM").find("kitty") != std::string::npos || set("GHOSTTY_RESOURCES_DIR") ||
      program == "ghostty" || program == "WezTerm") {
    return TerminalProtocol::Kitty;
  }
  if (program == "iTerm.app" || set("ITERM_SESSION_ID") || set("KONSOLE_VERSION")) return TerminalProtocol::ITerm2;
  if (sixel) return TerminalProtocol::Sixel;
  return std::nullopt;
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

Image shrink_to_fit(const Image& image, int max_width, int max_side) {
  double scale = std::min(1.0, static_cast<double>(max_width) / image.width);
  if (max_side > 0) scale = std::min(scale, static_cast<double>(max_side) / std::max(image.width, image.height));
  if (scale >= 1.0) return image;
  return resize(image, std::max(1, static_cast<int>(image.width * scale)),
                std::max(1, static_cast<int>(image.height * scale + 0.5)));
}

// tmux passes on what stands in its own DCS, with every escape doubled.
std::string wrap_for_tmux(std::string_view sequence) {
  std::string wrapped = "\x1bPtmux;";
  for (char c : sequence) wrapped.append(c == '\x1b' ? 2 : 1, c);
  return wrapped + "\x1b\\";
}

std::string kitty(const Image& image, const TerminalView& view) {
  const std::string payload = base64_encode(encode_png(image, {}, kFastCompression));
  std::string out, first = "a=T,f=100,q=2,";  // q=2: the terminal shall not answer into our input
  if (view.image_id != 0) first += fmt::format("i={},p=1,", view.image_id);
  if (view.tmux) first += "C=1,";  // tmux does not know that the cursor would move
  for (size_t at = 0; at < payload.size(); at += kKittyChunk) {
    const bool more = at + kKittyChunk < payload.size();
    const std::string chunk = fmt::format("\x1b_G{}m={};{}\x1b\\", at == 0 ? first : "", more ? 1 : 0,
                                          std::string_view(payload).substr(at, kKittyChunk));
    out += view.tmux ? wrap_for_tmux(chunk) : chunk;
  }
  return out;
}

std::string iterm2(const Image& image, const TerminalView& view) {
  const auto png = encode_png(image, {}, kFastCompression);
  const std::string sequence =
      fmt::format("\x1b]1337;File=inline=1;size={};width={};preserveAspectRatio=1{}:{}\x07", png.size(),
                  divide_up(image.width, view.cell_width), view.tmux ? ";doNotMoveCursor=1" : "", base64_encode(png));
  return view.tmux ? wrap_for_tmux(sequence) : sequence;
}

std::string sixel(const Image& image, const TerminalView& view) {
  const std::string sequence = encode_sixel(to_rgb(image));
  return view.tmux ? wrap_for_tmux(sequence) : sequence;
}

// Two pixels a cell: the upper one is the colour of "▀", the lower one its background.
std::string half_blocks(const Image& rgb) {
  std::string out;
  for (int y = 0; y < rgb.height; y += 2) {
    for (int x = 0; x < rgb.width; ++x) {
      const uint8_t* upper = rgb.at(x, y);
      fmt::format_to(std::back_inserter(out), "\x1b[38;2;{};{};{}", upper[0], upper[1], upper[2]);
      if (y + 1 < rgb.height) {
        const uint8_t* lower = rgb.at(x, y + 1);
        fmt::format_to(std::back_inserter(out), ";48;2;{};{};{}", lower[0], lower[1], lower[2]);
      }
      out += "m▀";
    }
    out += "\x1b[0m\n";
  }
  return out;
}

}  // namespace

TerminalProtocol choose_protocol(const Environment& environment, const TerminalAbilities& abilities) {
  const bool blocked = !environment("TMUX").empty() && !abilities.tmux_passthrough;
  if (blocked) return text_protocol(environment);
  const auto graphics = graphics_protocol(environment, abilities.sixel);
  return graphics ? *graphics : text_protocol(environment);
}

TerminalProtocol protocol_from_name(std::string_view name) {
  if (name == "kitty") return TerminalProtocol::Kitty;
  if (name == "iterm2") return TerminalProtocol::ITerm2;
  if (name == "sixel") return TerminalProtocol::Sixel;
  if (name == "blocks") return TerminalProtocol::HalfBlocks;
  check(name == "off", "images cannot be shown as \"{}\"; use kitty, iterm2, sixel, blocks or off", name);
  return TerminalProtocol::None;
}

TerminalPicture show_image(const Image& image, TerminalProtocol protocol, const TerminalView& view) {
  if (protocol == TerminalProtocol::None) return {};
  check(view.columns > 0 && view.cell_width > 0 && view.cell_height > 0, "show_image: a window of {} columns, cells of {}×{}",
        view.columns, view.cell_width, view.cell_height);
  TerminalPicture shown;
  if (view.replace_rows > 0) shown.bytes = fmt::format("\x1b[{}A\r", view.replace_rows);
  if (protocol == TerminalProtocol::HalfBlocks) {
    const int columns = view.max_side > 0 ? std::min(view.columns, divide_up(view.max_side, view.cell_width)) : view.columns;
    const Image fitted = shrink_to_fit(to_rgb(image), columns, 0);
    shown.rows = divide_up(fitted.height, 2);
    shown.bytes += half_blocks(fitted);
    return shown;
  }
  const int64_t window = int64_t{view.columns} * view.cell_width;
  const Image fitted = shrink_to_fit(image, static_cast<int>(std::min<int64_t>(window, kMaxImageSide)), view.max_side);
  shown.rows = divide_up(fitted.height, view.cell_height);
  // tmux does not see the picture, so the rows it will cover are made and left by hand.
  const std::string rows(static_cast<size_t>(shown.rows), '\n');
  if (view.tmux) shown.bytes += rows + fmt::format("\x1b[{}A", shown.rows);
  shown.bytes += protocol == TerminalProtocol::Kitty    ? kitty(fitted, view)
                 : protocol == TerminalProtocol::ITerm2 ? iterm2(fitted, view)
                                                        : sixel(fitted, view);
  shown.bytes += view.tmux ? rows : "\n";
  return shown;
}

}  // namespace flux2
