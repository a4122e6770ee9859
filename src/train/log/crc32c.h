#pragma once

#include <cstdint>
#include <string_view>

namespace flux2 {

// CRC-32C (Castagnoli): reflected polynomial 82F63B78, all ones before and after. "123456789" → E3069283.
uint32_t crc32c(std::string_view bytes);

// As TensorBoard stores it, so that a checksum of data that contains checksums stays useful.
inline uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace flux2
