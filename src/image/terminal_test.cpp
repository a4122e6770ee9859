#include "image/terminal.h"

#include <gtest/gtest.h>

#include <map>

#include "base/base64.h"
#include "base/error.h"
#include "image/read_image.h"
#include "image/test_images.h"

namespace flux2 {
namespace {

using enum TerminalProtocol;

TerminalProtocol choose(const std::map<std::string, std::string>& variables, const TerminalAbilities& abilities = {}) {
  return choose_protocol(
      [&](std::string_view name) {
        const auto found = variables.find(std::string(name));
        return found == variables.end() ? std::string() : found->second;
      },
      abilities);
}

TEST(Terminal, ChoosesByEnvironment) {
  EXPECT_EQ(choose({{"KITTY_WINDOW_ID", "1"}}), Kitty);
  EXPECT_EQ(choose({{"TERM", "xterm-kitty"}}), Kitty);
  EXPECT_EQ(choose({{"GHOSTTY_RESOURCES_DIR", "/x"}}), Kitty);
  EXPECT_EQ(choose({{"TERM_PROGRAM", "ghostty"}}), Kitty);
  EXPECT_EQ(choose({{"TERM_PROGRAM", "WezTerm"}}), Kitty);
  EXPECT_EQ(choose({{"TERM_PROGRAM", "iTerm.app"}}), ITerm2);
  EXPECT_EQ(choose({{"ITERM_SESSION_ID", "w0"}}), ITerm2);
  EXPECT_EQ(choose({{"KONSOLE_VERSION", "230401"}}), ITerm2);
  EXPECT_EQ(choose({{"KONSOLE_VERSION", "230401"}}, {.sixel = true}), ITerm2);
  EXPECT_EQ(choose({{"TERM", "xterm"}}, {.sixel = true}), Sixel);
  EXPECT_EQ(choose({{"COLORTERM", "truecolor"}, {"LANG", "de_DE.UTF-8"}}), HalfBlocks);
  EXPECT_EQ(choose({{"COLORTERM", "truecolor"}, {"LANG", "de_DE.UTF-8"}, {"LC_ALL", "C"}}), None);
  EXPECT_EQ(choose({{"COLORTERM", "yes"}, {"LC_CTYPE", "C.utf8"}}), None);
  EXPECT_EQ(choose({}), None);
}

TEST(Terminal, TmuxNeedsPassThrough) {
  std::map<std::string, std::string> inside = {{"KITTY_WINDOW_ID", "1"}, {"TMUX", "/tmp/x"}};
  EXPECT_EQ(choose(inside, {.tmux_passthrough = true}), Kitty);
  EXPECT_EQ(choose(inside), None);
  inside["COLORTERM"] = "24bit";
  inside["LC_ALL"] = "en_US.UTF-8";
  EXPECT_EQ(choose(inside), HalfBlocks);
}

TEST(Terminal, KnowsTheNamesOfProtocols) {
  EXPECT_EQ(protocol_from_name("kitty"), Kitty);
  EXPECT_EQ(protocol_from_name("blocks"), HalfBlocks);
  EXPECT_EQ(protocol_from_name("off"), None);
  EXPECT_THROW(protocol_from_name("paper"), Error);
}

// Takes everything up to and with `end` off the front of text; what stood before `end` is returned.
std::string take_until(std::string& text, const std::string& end) {
  const size_t at = text.find(end);
  EXPECT_NE(at, text.npos) << "no end of sequence";
  std::string part = text.substr(0, at);
  text.erase(0, at + end.size());
  return part;
}

struct KittyStream {
  std::string first_keys, payload;
  int chunks = 0;

  explicit KittyStream(std::string text) {
    for (bool more = true; more; ++chunks) {
      EXPECT_TRUE(text.starts_with("\x1b_G"));
      text.erase(0, 3);
      std::string keys = take_until(text, ";"), data = take_until(text, "\x1b\\");
      EXPECT_LE(data.size(), 4096u);
      if (chunks == 0) first_keys = keys;
      more = keys.ends_with("m=1");
      EXPECT_EQ(data.size() % 4, 0u);
      payload += data;
    }
    EXPECT_EQ(text, "\n");
  }
};

TEST(Terminal, KittyCarriesAPngInChunks) {
  const Image image = test_image(200, 90, 3);
  const TerminalPicture shown = show_image(image, Kitty, {.image_id = 7});
  const KittyStream stream(shown.bytes);
  EXPECT_GT(stream.chunks, 2);
  EXPECT_TRUE(stream.first_keys.starts_with("a=T,f=100,")) << stream.first_keys;
  EXPECT_NE(stream.first_keys.find(",i=7,"), std::string::npos) << stream.first_keys;
  EXPECT_EQ(read_image(base64_decode(stream.payload)), image);
  EXPECT_EQ(shown.rows, 6);
}

TEST(Terminal, NothingIsWiderThanTheWindow) {
  const Image image = test_image(300, 150, 4);
  const TerminalView narrow{.columns = 10, .cell_width = 8, .cell_height = 16};
  EXPECT_EQ(read_image(base64_decode(KittyStream(show_image(image, Kitty, narrow).bytes).payload)).width, 80);
  EXPECT_NE(show_image(image, Sixel, narrow).bytes.find("\"1;1;80;40"), std::string::npos);
  EXPECT_NE(show_image(image, ITerm2, narrow).bytes.find(";width=10;"), std::string::npos);
  EXPECT_EQ(show_image(image, HalfBlocks, narrow).rows, 3);
  const Image preview = read_image(base64_decode(KittyStream(show_image(image, Kitty, {.max_side = 64}).bytes).payload));
  EXPECT_EQ(preview.width, 64);
  EXPECT_EQ(preview.height, 32);
}

TEST(Terminal, ITerm2CarriesAPng) {
  const Image image = test_image(60, 30, 3);
  std::string text = show_image(image, ITerm2, {}).bytes;
  const std::string keys = take_until(text, ":");
  const auto png = base64_decode(take_until(text, "\x07"));
  EXPECT_EQ(text, "\n");
  EXPECT_EQ(keys, "\x1b]1337;File=inline=1;size=" + std::to_string(png.size()) + ";width=8;preserveAspectRatio=1");
  EXPECT_EQ(read_image(png), image);
}

TEST(Terminal, TmuxSequencesAreWrapped) {
  std::string text = show_image(test_image(90, 32, 3), Kitty, {.tmux = true}).bytes;
  EXPECT_EQ(take_until(text, "\x1b[2A"), "\n\n");
  std::string inner;
  while (text.starts_with("\x1bPtmux;")) {
    text.erase(0, 7);
    size_t at = 0;
    for (; !(text[at] == '\x1b' && text[at + 1] == '\\'); ++at) {
      if (text[at] == '\x1b') {
        ++at;
        ASSERT_EQ(text[at], '\x1b') << "an escape that is not doubled";
      }
      inner += text[at];
    }
    text.erase(0, at + 2);
  }
  EXPECT_EQ(text, "\n\n");
  EXPECT_NE(KittyStream(inner + "\n").first_keys.find("C=1"), std::string::npos);
}

TEST(Terminal, HalfBlocksPairRows) {
  Image image(2, 3, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i);
  const TerminalPicture shown = show_image(image, HalfBlocks, {.replace_rows = 2});
  EXPECT_EQ(shown.rows, 2);
  EXPECT_EQ(shown.bytes,
            "\x1b[2A\r"
            "\x1b[38;2;0;1;2;48;2;6;7;8m▀\x1b[38;2;3;4;5;48;2;9;10;11m▀\x1b[0m\n"
            "\x1b[38;2;12;13;14m▀\x1b[38;2;15;16;17m▀\x1b[0m\n");
}

TEST(Terminal, OffWritesNothing) { EXPECT_EQ(show_image(test_image(4, 4, 3), None, {}).bytes, ""); }

}  // namespace
}  // namespace flux2
