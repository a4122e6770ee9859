#include "image/letters.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

// ' ' to '~'. A letter is up to nine rows from the top, the seventh on the baseline; a row is a digit of base 32 whose bits are
// its five pixels, the highest on the left.
constexpr std::array<std::string_view, 95> kLetters = {
    "",          "4444404",   "aa",        "aavavaa",  "4fke5u4",  "op248j3", "cik8lid", "448",        // SP ! " # $ % & '
    "2488842",   "8422248",   "04lel4",    "044v44",   "00000c48", "000v",    "00000cc", "122488g",    // ( ) * + , - . /
    "ehjlphe",   "4c4444e",   "eh1248v",   "v2421he",  "26aiv22",  "vgu11he", "68guhhe", "v124888",    // 0 … 7
    "ehhehhe",   "ehhf12c",   "0cc0cc",    "0cc0cc48", "248g842",  "00v0v",   "8421248", "eh12404",    // 8 9 : ; < = > ?
    "eh1dlle",   "ehhvhhh",   "uhhuhhu",   "ehggghe",  "sihhhis",  "vgguggv", "vgguggg", "ehgnhhf",    // @ A … G
    "hhhvhhh",   "e44444e",   "72222ic",   "hikokih",  "ggggggv",  "hrllhhh", "hhpljhh", "ehhhhhe",    // H … O
    "uhhuggg",   "ehhhlid",   "uhhukih",   "fgge11u",  "v444444",  "hhhhhhe", "hhhhha4", "hhhllla",    // P … W
    "hha4ahh",   "hhha444",   "v1248gv",   "e88888e",  "g884221",  "e22222e", "4ah",     "0000000v",   // X Y Z [ \ ] ^ _
    "842",       "00e1fhf",   "ggmphhu",   "00egghe",  "11djhhf",  "00ehvge", "698s888", "00fhhhf1e",  // ` a … g
    "ggmphhh",   "40c444e",   "2062222ic", "ggikoki",  "c44444e",  "00qllll", "00mphhh", "00ehhhe",    // h … o
    "00uhhhugg", "00fhhhf11", "00mpggg",   "00fge1u",  "88s8896",  "00hhhjd", "00hhha4", "00hhlla",    // p … w
    "00ha4ah",   "00hhhhf1e", "00v248v",   "2448442",  "4444444",  "8442448", "008l2",                 // x y z { | } ~
};
constexpr std::string_view kBox = "vhhhhhv";

int pixels_of(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

// Characters, not bytes; each with the ASCII code it is drawn as, 0 for the box.
std::vector<char> characters(std::string_view utf8) {
  std::vector<char> list;
  for (const char c : utf8) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) continue;
    list.push_back(byte >= ' ' && byte <= '~' ? c : '\0');
  }
  return list;
}

// The bytes of the first `count` characters.
size_t bytes_of(std::string_view utf8, size_t count) {
  size_t at = 0;
  while (at < utf8.size() && (count > 0 || (static_cast<unsigned char>(utf8[at]) & 0xc0) == 0x80)) {
    if ((static_cast<unsigned char>(utf8[at]) & 0xc0) != 0x80) --count;
    ++at;
  }
  return at;
}

}  // namespace

std::vector<std::string> wrapped_text(std::string_view text, int columns) {
  const auto most = static_cast<size_t>(std::max(1, columns));
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = bytes_of(text, most);
    if (end < text.size())
      if (const size_t space = text.rfind(' ', end); space != text.npos && space > 0) end = space;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

void draw_text(Image& image, int x, int y, std::string_view text, int scale, std::array<uint8_t, 3> colour) {
  require(image.channels == 3 && scale > 0, "draw_text: {} channels, scale {}", image.channels, scale);
  for (const char c : characters(text)) {
    const std::string_view rows = c ? kLetters[static_cast<size_t>(c - ' ')] : kBox;
    for (int row = 0; row < static_cast<int>(rows.size()) * scale; ++row)
      for (int column = 0; column < 5 * scale; ++column) {
        const bool set = pixels_of(rows[static_cast<size_t>(row / scale)]) >> (4 - column / scale) & 1;
        const int px = x + column, py = y + row;
        if (set && px >= 0 && py >= 0 && px < image.width && py < image.height) std::copy_n(colour.begin(), 3, image.at(px, py));
      }
    x += kLetterWidth * scale;
  }
}

}  // namespace flux2
