#pragma once

#include <cstddef>
#include <memory>

namespace flux2 {

// A block of memory and whatever keeps it alive: a stream's pool, a mapped file, a vector.
class Buffer {
 public:
  Buffer(void* data, size_t bytes, std::shared_ptr<const void> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
  std::shared_ptr<const void> owner_;
};

}  // namespace flux2
