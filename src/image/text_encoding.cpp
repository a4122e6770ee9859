#include "image/text_encoding.h"

#include "base/text.h"

#include <cstdint>

namespace flux2 {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Takes one code point off the front of `text`. Nothing, and one byte taken, when the bytes are not valid UTF-8.
std::optional<char32_t> take(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  bool valid = length != 0 && length <= text.size();
  for (size_t i = 1; valid && i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    valid = next >> 6 == 2;
    code = code << 6 | (next & 63);
  }
  constexpr char32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  valid = valid && code >= kLowest[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  text.remove_prefix(valid ? length : 1);
  return valid ? std::optional(code) : std::nullopt;
}

void append(std::string& utf8, char32_t code) {
  const auto put = [&](char32_t byte) { utf8 += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 63));
    }
    put(0x80 | (code >> 6 & 63));
  }
  put(0x80 | (code & 63));
}

}  // namespace

std::optional<std::string> utf8_to_latin1(std::string_view utf8) {
  std::string latin1;
  while (!utf8.empty()) {
    const auto code = take(utf8);
    if (!code || *code > 0xFF) return std::nullopt;
    latin1 += static_cast<char>(static_cast<unsigned char>(*code));
  }
  return latin1;
}

std::string latin1_to_utf8(std::string_view latin1) {
  std::string utf8;
  for (unsigned char c : latin1) append(utf8, c);
  return utf8;
}

std::string utf8_to_utf16be(std::string_view utf8) {
  std::string bytes;
  const auto put = [&](char32_t unit) {
    bytes += static_cast<char>(static_cast<unsigned char>(unit >> 8));
    bytes += static_cast<char>(static_cast<unsigned char>(unit & 255));
  };
  while (!utf8.empty()) {
    const char32_t code = take(utf8).value_or(kReplacement);
    if (code < 0x10000) {
      put(code);
    } else {
      put(0xD800 | (code - 0x10000) >> 10);
      put(0xDC00 | (code & 0x3FF));
    }
  }
  return bytes;
}

std::string utf16_to_utf8(std::string_view bytes, std::endian order) {
  const auto unit = [&](size_t i) -> char32_t {
    const auto a = static_cast<unsigned char>(bytes[2 * i]), b = static_cast<unsigned char>(bytes[2 * i + 1]);
    return order == std::endian::big ? a << 8 | b : b << 8 | a;
  };
  std::string utf8;
  const size_t count = bytes.size() / 2;
  for (size_t i = 0; i < count; ++i) {
    char32_t code = unit(i);
    const bool high = code >= 0xD800 && code <= 0xDBFF;
    if (high && i + 1 < count && unit(i + 1) >> 10 == 0x37) {
      code = 0x10000 + ((code & 0x3FF) << 10 | (unit(++i) & 0x3FF));
    } else if (code >> 11 == 0x1B) {
      code = kReplacement;
    }
    append(utf8, code);
  }
  return utf8;
}

std::string any_to_utf8(std::string_view text) { return is_utf8(text) ? std::string(text) : latin1_to_utf8(text); }

}  // namespace flux2
