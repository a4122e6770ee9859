#include "server/store/zip_stream.h"

#include <zlib.h>

#include <algorithm>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kZipPiece = 128 << 10;
constexpr uint64_t kMost32 = 0xffffffffu;
constexpr uint64_t kMost16 = 0xffffu;
constexpr uint16_t kUtf8Name = 1 << 11;
constexpr uint16_t kOldVersion = 20, kZip64Version = 45;
constexpr uint16_t kDosDate = (46 << 9) | (1 << 5) | 1;  // 2026-01-01: archives of equal rows are equal

void put16(std::string& out, uint64_t value) {
  for (int i = 0; i < 2; ++i) out += static_cast<char>(value >> (8 * i));
}
void put32(std::string& out, uint64_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
}
void put64(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
}

// Of an entry: what the header before its bytes and the one in the directory have in common.
void put_common(std::string& out, uint16_t version, uint32_t crc, uint64_t size, size_t name, size_t extra) {
  put16(out, version);
  put16(out, kUtf8Name);
  put16(out, 0);  // stored
  put16(out, 0);  // time
  put16(out, kDosDate);
  put32(out, crc);
  put32(out, size);
  put32(out, size);
  put16(out, name);
  put16(out, extra);
}

std::string local_header(const std::string& name, uint32_t crc, uint64_t size) {
  std::string out;
  put32(out, 0x04034b50);
  put_common(out, kOldVersion, crc, size, name.size(), 0);
  return out + name;
}

std::string directory_entry(const std::string& name, uint32_t crc, uint64_t size, uint64_t offset) {
  const bool is_far = offset >= kMost32;
  std::string extra;
  if (is_far) {
    put16(extra, 1);  // zip64: the offset alone
    put16(extra, 8);
    put64(extra, offset);
  }
  std::string out;
  put32(out, 0x02014b50);
  put16(out, kZip64Version);  // made by
  put_common(out, is_far ? kZip64Version : kOldVersion, crc, size, name.size(), extra.size());
  put16(out, 0);  // comment
  put16(out, 0);  // disk
  put16(out, 0);  // attributes
  put32(out, 0);
  put32(out, is_far ? kMost32 : offset);
  return out + name + extra;
}

std::string end_of_directory(uint64_t count, uint64_t offset, uint64_t size) {
  std::string out;
  if (count >= kMost16 || offset >= kMost32 || size >= kMost32) {
    put32(out, 0x06064b50);
    put64(out, 44);
    put16(out, kZip64Version);
    put16(out, kZip64Version);
    put32(out, 0);
    put32(out, 0);
    put64(out, count);
    put64(out, count);
    put64(out, size);
    put64(out, offset);
    put32(out, 0x07064b50);
    put32(out, 0);
    put64(out, offset + size);
    put32(out, 1);
  }
  put32(out, 0x06054b50);
  put16(out, 0);
  put16(out, 0);
  put16(out, std::min(count, kMost16));
  put16(out, std::min(count, kMost16));
  put32(out, std::min(size, kMost32));
  put32(out, std::min(offset, kMost32));
  put16(out, 0);
  return out;
}

}  // namespace

ZipStream::ZipStream(std::vector<Entry> entries) : entries_(std::move(entries)) {
  uint64_t directory_bytes = 0;
  for (Entry& entry : entries_) {
    check(!entry.name.empty() && entry.name.size() < kMost16, "the name of an archive entry must have 1 to 65534 bytes");
    if (!entry.file) entry.size = entry.content.size();
    check(entry.size < kMost32, "{} is too large for an archive", entry.name);
    const uint64_t offset = size_;
    size_ += local_header(entry.name, 0, entry.size).size() + entry.size;
    directory_bytes += directory_entry(entry.name, 0, entry.size, offset).size();
  }
  size_ += directory_bytes + end_of_directory(entries_.size(), size_, directory_bytes).size();
}

std::string ZipStream::begin_entry(uint64_t offset) {
  const Entry& entry = entries_[written_.size()];
  mapped_.reset();
  if (!entry.file) {
    rest_ = std::as_bytes(std::span(entry.content));
  } else if (entry.size == 0) {
    rest_ = {};
  } else {
    mapped_ = MappedFile::open(entry.file());
    rest_ = mapped_->bytes();
    if (rest_.size() != entry.size) fail(ErrorCode::BadFile, "a file changed while it was exported: {}", entry.name);
  }
  const auto crc = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(rest_.data()), rest_.size()));
  written_.push_back({.offset = offset, .size = entry.size, .crc = crc});
  return local_header(entry.name, crc, entry.size);
}

std::string ZipStream::directory(uint64_t offset) const {
  std::string out;
  for (size_t i = 0; i < entries_.size(); ++i)
    out += directory_entry(entries_[i].name, written_[i].crc, written_[i].size, written_[i].offset);
  return out + end_of_directory(entries_.size(), offset, out.size());
}

std::string ZipStream::next() {
  std::string out;
  while (out.size() < kZipPiece && !is_done_) {
    if (!is_open_ && written_.size() == entries_.size()) {
      out += directory(sent_ + out.size());
      is_done_ = true;
      break;
    }
    if (!is_open_) out += begin_entry(sent_ + out.size());
    const size_t bytes = std::min(rest_.size(), kZipPiece);
    out.append(reinterpret_cast<const char*>(rest_.data()), bytes);
    rest_ = rest_.subspan(bytes);
    is_open_ = !rest_.empty();
  }
  sent_ += out.size();
  return out;
}

}  // namespace flux2
