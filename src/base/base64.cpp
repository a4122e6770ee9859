#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kPiece = size_t{3} << 24;  // OpenSSL takes lengths as int; a multiple of 3, and of 4 as digits

bool is_digit(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::string base64_encode(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '\0');
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    // It also writes a zero after the text: over the next piece's first digit, or over the string's own terminating zero.
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + at / 3 * 4),
                    reinterpret_cast<const unsigned char*>(piece.data()), static_cast<int>(piece.size()));
  }
  return text;
}

std::vector<std::byte> base64_decode(std::string_view text) {
  // OpenSSL skips blanks only at the ends and takes '-' for the end of the text, so each character is checked here.
  std::string digits;
  digits.reserve(text.size() + 3);
  size_t padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_space(text[i])) continue;
    if (text[i] == '=') {
      ++padding;
      continue;
    }
    check(is_digit(text[i]) && padding == 0, "base64: unexpected character at position {}", i);
    digits += text[i];
  }
  const size_t rest = digits.size() % 4, size = digits.size() / 4 * 3 + (rest == 0 ? 0 : rest - 1);
  check(rest != 1 && (padding == 0 || (digits.size() + padding) % 4 == 0) && padding <= 2, "base64: the text is cut short");
  digits.append((4 - rest) % 4, '=');
  std::vector<std::byte> bytes(digits.size() / 4 * 3);
  for (size_t at = 0; at < digits.size(); at += kPiece) {
    const size_t count = std::min(kPiece, digits.size() - at);
    const int written = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data() + at / 4 * 3),
                                        reinterpret_cast<const unsigned char*>(digits.data() + at), static_cast<int>(count));
    require(written == static_cast<int>(count / 4 * 3), "base64: OpenSSL refused the text");
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace flux2
