#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace flux2 {

// SHA-256 of bytes that may arrive in several parts.
class Sha256 {
 public:
  Sha256();

  Sha256& add(std::span<const std::byte> bytes);
  std::string hex() const;  // of what was added so far, 64 digits

 private:
  std::shared_ptr<void> state_;
};

std::string sha256(std::span<const std::byte> bytes);

}  // namespace flux2
