#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace flux2 {

// Bounds-checked reading of integers in bytes that came from outside; a position beyond the end throws BadFile.
class ByteView {
 public:
  ByteView(std::span<const std::byte> bytes, std::endian order) : bytes_(bytes), order_(order) {}

  size_t size() const { return bytes_.size(); }

  std::span<const std::byte> part(size_t at, size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) {
      fail(ErrorCode::BadFile, "the file is truncated: {} bytes at {} of {}", size, at, bytes_.size());
    }
    return bytes_.subspan(at, size);
  }

  std::string_view text(size_t at, size_t size) const { return {reinterpret_cast<const char*>(part(at, size).data()), size}; }

  uint8_t u8(size_t at) const { return std::to_integer<uint8_t>(part(at, 1)[0]); }
  uint16_t u16(size_t at) const { return static_cast<uint16_t>(integer(at, 2)); }
  uint32_t u32(size_t at) const { return integer(at, 4); }
  int32_t i32(size_t at) const { return static_cast<int32_t>(integer(at, 4)); }

 private:
  uint32_t integer(size_t at, size_t size) const {
    uint32_t value = 0;
    const auto digits = part(at, size);
    for (size_t i = 0; i < size; ++i) {
      value = value << 8 | std::to_integer<uint32_t>(digits[order_ == std::endian::big ? i : size - 1 - i]);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  std::endian order_;
};

}  // namespace flux2
