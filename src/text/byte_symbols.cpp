#include "text/byte_symbols.h"

#include <array>

#include "text/unicode.h"

namespace flux2 {

namespace {

constexpr char32_t kSymbolLimit = 0x100 + 68;

constexpr bool prints_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> kSymbolOfByte = [] {
  std::array<char32_t, 256> symbols{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) symbols[byte] = prints_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return symbols;
}();

constexpr std::array<int16_t, kSymbolLimit> kByteOfSymbol = [] {
  std::array<int16_t, kSymbolLimit> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[kSymbolOfByte[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

void append_byte_symbol(std::string& out, unsigned char byte) { append_utf8(out, kSymbolOfByte[byte]); }

void append_bytes_of(std::string& out, std::string_view token) {
  const size_t before = out.size();
  for (size_t pos = 0; pos < token.size();) {
    const char32_t symbol = next_code_point(token, pos);
    if (symbol >= kSymbolLimit || kByteOfSymbol[symbol] < 0) {
      out.resize(before);
      out += token;
      return;
    }
    out += static_cast<char>(kByteOfSymbol[symbol]);
  }
}

}  // namespace flux2
