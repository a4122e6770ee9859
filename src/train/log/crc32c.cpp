#include "train/log/crc32c.h"

#include <array>
#include <cstddef>

namespace flux2 {

namespace {

// Eight bytes at a time: table k holds the effect of a byte that k further bytes follow. Sample images are megabytes.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 255u];
    }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  uint32_t crc = 0xFFFFFFFFu;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint32_t low = crc ^ (byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24);
    crc = kCrcTables[7][low & 255u] ^ kCrcTables[6][low >> 8 & 255u] ^ kCrcTables[5][low >> 16 & 255u] ^
          kCrcTables[4][low >> 24] ^ kCrcTables[3][byte(i + 4)] ^ kCrcTables[2][byte(i + 5)] ^ kCrcTables[1][byte(i + 6)] ^
          kCrcTables[0][byte(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ byte(i)) & 255u];
  return ~crc;
}

}  // namespace flux2
