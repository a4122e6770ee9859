#include "weights/stored_zip.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr uint32_t kLocalFile = 0x04034b50, kDirectoryEntry = 0x02014b50, kDirectoryEnd = 0x06054b50;
constexpr uint32_t kDirectoryEnd64 = 0x06064b50, kDirectoryLocator64 = 0x07064b50;
constexpr uint64_t kEndBytes = 22, kLocator64Bytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint32_t kInExtra = 0xffffffff;  // the value is in the field of large sizes
constexpr uint16_t kLargeSizes = 0x0001;

class Archive {
 public:
  explicit Archive(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::map<std::string, std::span<const std::byte>> files() const {
    const auto [count, directory, size] = find_directory();
    std::map<std::string, std::span<const std::byte>> files;
    uint64_t at = directory;
    const uint64_t end = directory + size;
    for (uint64_t i = 0; i < count; ++i) {
      need(at, kEntryBytes, end);
      if (number(at, 4) != kDirectoryEntry) damaged("an entry of its directory is missing");
      const uint64_t name_bytes = number(at + 28, 2), extra_bytes = number(at + 30, 2), comment_bytes = number(at + 32, 2);
      need(at + kEntryBytes, name_bytes + extra_bytes + comment_bytes, end);
      const std::string name = text(at + kEntryBytes, name_bytes);
      if (number(at + 8, 2) & 1) fail(ErrorCode::BadFile, "the file {} in the zip archive is encrypted", printable(name));
      if (number(at + 10, 2) != 0)
        fail(ErrorCode::BadFile, "the file {} in the zip archive is compressed; torch.save stores files as they are",
             printable(name));
      Sizes sizes{number(at + 20, 4), number(at + 24, 4), number(at + 42, 4)};
      read_large_sizes(at + kEntryBytes + name_bytes, extra_bytes, sizes);
      if (sizes.packed != sizes.plain) damaged("a stored file has two sizes");
      if (!files.emplace(name, content_of(sizes)).second)
        fail(ErrorCode::BadFile, "the file {} is in the zip archive twice", printable(name));
      at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
    }
    return files;
  }

 private:
  struct Directory {
    uint64_t count, offset, size;
  };
  struct Sizes {
    uint64_t packed, plain, offset;
  };

  [[noreturn]] static void damaged(const char* why) { fail(ErrorCode::BadFile, "the zip archive is damaged: {}", why); }

  // Bytes [at, at + size) lie before `end`.
  static void need(uint64_t at, uint64_t size, uint64_t end) {
    if (at > end || size > end - at) damaged("it ends too early");
  }
  uint64_t number(uint64_t at, int size) const {
    need(at, static_cast<uint64_t>(size), bytes_.size());
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(bytes_[at + static_cast<uint64_t>(i)]) << (8 * i);
    return value;
  }
  std::string text(uint64_t at, uint64_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data() + at), static_cast<size_t>(size)};
  }

  Directory find_directory() const {
    if (bytes_.size() < kEndBytes) damaged("it is too short");
    const uint64_t last = bytes_.size() - kEndBytes, first = last - std::min(last, kLongestComment);
    uint64_t at = last;
    while (number(at, 4) != kDirectoryEnd)
      if (at-- == first) damaged("it has no directory");
    Directory d{number(at + 10, 2), number(at + 16, 4), number(at + 12, 4)};
    if (at >= kLocator64Bytes && number(at - kLocator64Bytes, 4) == kDirectoryLocator64) {
      const uint64_t record = number(at - kLocator64Bytes + 8, 8);
      need(record, kEnd64Bytes, at);
      if (number(record, 4) != kDirectoryEnd64) damaged("its large directory is missing");
      d = {number(record + 32, 8), number(record + 48, 8), number(record + 40, 8)};
    }
    need(d.offset, d.size, at);
    if (d.count > d.size / kEntryBytes) damaged("its directory is too short");
    return d;
  }

  void read_large_sizes(uint64_t at, uint64_t size, Sizes& sizes) const {
    for (const uint64_t end = at + size; at + 4 <= end;) {
      const uint64_t kind = number(at, 2), length = number(at + 2, 2);
      need(at + 4, length, end);
      if (kind == kLargeSizes) {
        uint64_t value = at + 4;
        for (uint64_t* field : {&sizes.plain, &sizes.packed, &sizes.offset})
          if (*field == kInExtra && value + 8 <= at + 4 + length) *field = number(value, 8), value += 8;
      }
      at += 4 + length;
    }
  }

  std::span<const std::byte> content_of(const Sizes& sizes) const {
    need(sizes.offset, kLocalBytes, bytes_.size());
    if (number(sizes.offset, 4) != kLocalFile) damaged("a file has no header");
    const uint64_t begin = sizes.offset + kLocalBytes + number(sizes.offset + 26, 2) + number(sizes.offset + 28, 2);
    need(begin, sizes.plain, bytes_.size());
    return bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(sizes.plain));
  }

  std::span<const std::byte> bytes_;
};

}  // namespace

std::map<std::string, std::span<const std::byte>> read_stored_zip(std::span<const std::byte> archive) {
  return Archive(archive).files();
}

}  // namespace flux2
