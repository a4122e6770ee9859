#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {

// Identifies the file that a note belongs to; notes for other files are ignored.
struct PartialIdentity {
  std::string key;       // what the bytes are: an ETag
  uint64_t size = 0;     // of the whole file
  uint64_t segment = 0;  // bytes of each segment but the last

  size_t segments() const { return size == 0 ? 1 : static_cast<size_t>((size + segment - 1) / segment); }
  bool operator==(const PartialIdentity&) const = default;
};

// The progress of each segment of a partial file, stored in a file next to it. A stored number survives any end of the
// process immediately, but a power failure only after persist(). Each segment therefore has two numbers; after a restart of the
// machine, the second one is used.
class PartialNote {
 public:
  PartialNote(std::filesystem::path path, PartialIdentity identity);  // continues from a matching note, or starts at zero
  PartialNote(const PartialNote&) = delete;
  PartialNote& operator=(const PartialNote&) = delete;
  ~PartialNote();

  const PartialIdentity& identity() const { return identity_; }
  uint64_t written(size_t segment) const;
  void set_written(size_t segment, uint64_t bytes);
  void set_durable(size_t segment, uint64_t bytes);
  void persist() const;
  void remove();

  uint64_t begin(size_t segment) const { return segment * identity_.segment; }
  uint64_t length(size_t segment) const;

 private:
  struct Header;
  struct Mark {
    uint64_t written = 0, durable = 0;
  };
  bool adopt(size_t bytes);
  void start(size_t bytes);
  void store(size_t segment, size_t field, uint64_t value);

  std::filesystem::path path_;
  PartialIdentity identity_;
  int fd_ = -1;
  mutable std::vector<Mark> marks_;
};

}  // namespace flux2
