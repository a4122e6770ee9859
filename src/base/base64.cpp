#include "base/base64.h"

#include <array>
#include <cstdint>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kForeign = -1, kSpace = -2;

constexpr std::array<int8_t, 256> make_values() {
  std::array<int8_t, 256> values{};
  values.fill(kForeign);
  for (unsigned char c : {' ', '\t', '\r', '\n'}) values[c] = kSpace;
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return values;
}

constexpr std::array<int8_t, 256> kValues = make_values();

}  // namespace

std::string base64_encode(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    uint32_t group = std::to_integer<uint32_t>(bytes[i]) << 16;
    if (left > 1) group |= std::to_integer<uint32_t>(bytes[i + 1]) << 8;
    if (left > 2) group |= std::to_integer<uint32_t>(bytes[i + 2]);
    text += kAlphabet[group >> 18];
    text += kAlphabet[group >> 12 & 63];
    text += left > 1 ? kAlphabet[group >> 6 & 63] : '=';
    text += left > 2 ? kAlphabet[group & 63] : '=';
  }
  return text;
}

std::vector<std::byte> base64_decode(std::string_view text) {
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t group = 0;
  size_t digits = 0, padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (kValues[c] == kSpace) continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    check(kValues[c] >= 0 && padding == 0, "base64: unexpected character at position {}", i);
    group = group << 6 | static_cast<uint32_t>(kValues[c]);
    if (++digits % 4 == 0) {
      for (int shift : {16, 8, 0}) bytes.push_back(static_cast<std::byte>(group >> shift & 255));
      group = 0;
    }
  }
  const size_t rest = digits % 4;
  check(rest != 1 && (padding == 0 || (digits + padding) % 4 == 0) && padding <= 2, "base64: the text is cut short");
  if (rest == 2) bytes.push_back(static_cast<std::byte>(group >> 4 & 255));
  if (rest == 3) {
    bytes.push_back(static_cast<std::byte>(group >> 10 & 255));
    bytes.push_back(static_cast<std::byte>(group >> 2 & 255));
  }
  return bytes;
}

}  // namespace flux2
