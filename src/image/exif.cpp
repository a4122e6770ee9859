#include "image/exif.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "image/byte_view.h"
#include "image/text_encoding.h"

namespace flux2 {

namespace {

using namespace std::string_view_literals;

constexpr uint16_t kMake = 0x010F, kOrientation = 0x0112, kSoftware = 0x0131, kExifFolder = 0x8769;
constexpr uint16_t kExifVersion = 0x9000, kUserComment = 0x9286;
constexpr uint16_t kAscii = 2, kShort = 3, kLong = 4, kUndefined = 7;
constexpr std::string_view kUnicodePrefix = "UNICODE\0"sv, kAsciiPrefix = "ASCII\0\0\0"sv, kNoPrefix = "\0\0\0\0\0\0\0\0"sv;
constexpr size_t kEntryBytes = 12;

struct Entry {
  uint16_t tag, type;
  uint32_t count;
  size_t at;  // of the value or, when that is longer than four bytes, of its offset
};

size_t size_of_type(uint16_t type) {
  constexpr size_t kSizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8};
  return type < std::size(kSizes) ? kSizes[type] : 0;
}

template <class Visit>
void for_each_entry(const ByteView& block, size_t folder, Visit&& visit) {
  const size_t count = block.u16(folder);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = folder + 2 + i * kEntryBytes;
    visit(Entry{block.u16(at), block.u16(at + 2), block.u32(at + 4), at + 8});
  }
}

std::string_view value_bytes(const ByteView& block, const Entry& entry) {
  const uint64_t size = uint64_t{entry.count} * size_of_type(entry.type);
  return block.text(size > 4 ? block.u32(entry.at) : entry.at, size);
}

std::string_view until_nul(std::string_view text) { return text.substr(0, text.find('\0')); }

// The standard leaves the byte order of the text to the block; many writers do not. In most text one byte of each pair
// is zero, which tells the order; otherwise the block's is taken.
std::string decode_utf16(std::string_view text, std::endian block_order) {
  if (text.starts_with("\xfe\xff")) return utf16_to_utf8(text.substr(2), std::endian::big);
  if (text.starts_with("\xff\xfe")) return utf16_to_utf8(text.substr(2), std::endian::little);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < text.size(); ++i) zeros[i % 2] += text[i] == '\0';
  const bool even = zeros[0] == zeros[1] ? block_order == std::endian::big : zeros[0] > zeros[1];
  return utf16_to_utf8(text, even ? std::endian::big : std::endian::little);
}

std::string decode_comment(std::string_view value, std::endian block_order) {
  std::string text;
  if (value.starts_with(kUnicodePrefix)) {
    text = decode_utf16(value.substr(8), block_order);
  } else if (value.starts_with(kAsciiPrefix) || value.starts_with(kNoPrefix)) {
    text = any_to_utf8(value.substr(8));
  } else {
    text = any_to_utf8(value);
  }
  text.resize(text.find_last_not_of('\0') + 1);  // writers pad with zeros
  return text;
}

void read_block(const ByteView& block, std::endian order, Exif& exif) {
  // Only the first of several equal tags counts: decoding each of 65535 long texts would take minutes.
  size_t exif_folder = 0;
  bool seen_make = false, seen_software = false, seen_comment = false;
  const auto first = [](bool& seen) { return !std::exchange(seen, true); };
  for_each_entry(block, block.u32(4), [&](const Entry& entry) {
    if (entry.tag == kOrientation && entry.type == kShort && entry.count == 1) {
      const int value = block.u16(entry.at);
      if (value >= 1 && value <= 8) exif.orientation = value;
    }
    if (entry.tag == kMake && entry.type == kAscii && first(seen_make))
      exif.make = any_to_utf8(until_nul(value_bytes(block, entry)));
    if (entry.tag == kSoftware && entry.type == kAscii && first(seen_software))
      exif.software = any_to_utf8(until_nul(value_bytes(block, entry)));
    if (entry.tag == kExifFolder && entry.type == kLong) exif_folder = block.u32(entry.at);
  });
  if (exif_folder == 0) return;
  for_each_entry(block, exif_folder, [&](const Entry& entry) {
    if (entry.tag == kUserComment && size_of_type(entry.type) == 1 && first(seen_comment))
      exif.comment = decode_comment(value_bytes(block, entry), order);
  });
}

// Lays out folders one behind the other, each followed by the values that do not fit its entries.
class BlockWriter {
 public:
  struct Field {
    uint16_t tag, type;
    uint32_t count;
    std::string value;
  };

  BlockWriter() : bytes_("MM\0*\0\0\0\x08"sv) {}

  static Field text(uint16_t tag, const std::string& value) {
    return {tag, kAscii, static_cast<uint32_t>(value.size() + 1), value + '\0'};
  }
  static Field undefined(uint16_t tag, std::string value) {
    return {tag, kUndefined, static_cast<uint32_t>(value.size()), std::move(value)};
  }
  static size_t folder_bytes(const std::vector<Field>& fields) {
    size_t size = 2 + fields.size() * kEntryBytes + 4;
    for (const Field& field : fields) size += field.value.size() > 4 ? padded(field.value.size()) : 0;
    return size;
  }

  size_t size() const { return bytes_.size(); }
  static std::string big(uint32_t value, int size) {
    std::string digits;
    for (int i = size - 1; i >= 0; --i) digits += static_cast<char>(static_cast<unsigned char>(value >> (8 * i) & 255));
    return digits;
  }

  void add_folder(const std::vector<Field>& fields) {
    size_t value_at = size() + 2 + fields.size() * kEntryBytes + 4;
    std::string values;
    bytes_ += big(static_cast<uint32_t>(fields.size()), 2);
    for (const Field& field : fields) {
      bytes_ += big(field.tag, 2) + big(field.type, 2) + big(field.count, 4);
      std::string value = field.value;
      value.resize(value.size() > 4 ? padded(value.size()) : 4, '\0');
      if (field.value.size() > 4) {
        bytes_ += big(static_cast<uint32_t>(value_at + values.size()), 4);
        values += value;
      } else {
        bytes_ += value;
      }
    }
    bytes_ += big(0, 4) + values;  // no next folder
  }

  std::vector<std::byte> take() const {
    const auto view = std::as_bytes(std::span(bytes_));
    return {view.begin(), view.end()};
  }

 private:
  static size_t padded(size_t size) { return (size + 1) / 2 * 2; }

  std::string bytes_;
};

}  // namespace

Exif parse_exif(std::span<const std::byte> block) {
  Exif exif;
  std::string_view text(reinterpret_cast<const char*>(block.data()), block.size());
  if (text.starts_with("Exif\0"sv) && block.size() > 6) block = block.subspan(6), text.remove_prefix(6);
  const bool big = text.starts_with("MM\0*"sv), little = text.starts_with("II*\0"sv);
  if (!big && !little) return exif;
  const std::endian order = big ? std::endian::big : std::endian::little;
  try {
    read_block(ByteView(block, order), order, exif);
  } catch (const Error&) {  // a position outside the block
  }
  return exif;
}

std::vector<std::byte> build_exif(const Exif& exif) {
  if (exif.orientation == 1 && exif.make.empty() && exif.software.empty() && exif.comment.empty()) return {};
  BlockWriter writer;
  std::vector<BlockWriter::Field> main, inner;  // tags ascend
  if (!exif.make.empty()) main.push_back(BlockWriter::text(kMake, exif.make));
  if (exif.orientation != 1) {
    main.push_back({kOrientation, kShort, 1, BlockWriter::big(static_cast<uint32_t>(exif.orientation), 2)});
  }
  if (!exif.software.empty()) main.push_back(BlockWriter::text(kSoftware, exif.software));
  if (!exif.comment.empty()) {
    inner.push_back(BlockWriter::undefined(kExifVersion, "0232"));
    inner.push_back(BlockWriter::undefined(kUserComment, std::string(kUnicodePrefix) + utf8_to_utf16be(exif.comment)));
    main.push_back({kExifFolder, kLong, 1, "...."});
    main.back().value = BlockWriter::big(static_cast<uint32_t>(writer.size() + BlockWriter::folder_bytes(main)), 4);
  }
  writer.add_folder(main);
  if (!inner.empty()) writer.add_folder(inner);
  return writer.take();
}

}  // namespace flux2
