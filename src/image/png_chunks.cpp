#include "image/png_chunks.h"

#include <zlib.h>

#include <algorithm>

#include "base/text.h"
#include "image/byte_view.h"
#include "image/text_encoding.h"

namespace flux2 {

namespace {

constexpr size_t kSignatureBytes = 8, kChunkOverhead = 12;  // length, type, checksum

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit(&stream) != Z_OK) fail(ErrorCode::OutOfMemory, "zlib: no memory");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

// Takes the text before the next zero byte off the front; nothing when there is no zero byte.
std::optional<std::string_view> take_field(std::string_view& data) {
  const size_t end = data.find('\0');
  if (end == data.npos) return std::nullopt;
  const std::string_view field = data.substr(0, end);
  data.remove_prefix(end + 1);
  return field;
}

// Nothing when the chunk is damaged or its text has more than `limit` bytes.
std::optional<std::string> read_text(std::string_view type, std::string_view data, size_t limit, size_t& work) {
  const auto plain = [&](std::string (*decode)(std::string_view)) {
    return data.size() <= limit ? std::optional(decode(data)) : std::nullopt;
  };
  if (type == "tEXt") return plain(latin1_to_utf8);
  if (type == "zTXt") {
    if (data.empty() || data[0] != 0) return std::nullopt;
    const auto text = inflated(data.substr(1), limit, work);
    return text ? std::optional(latin1_to_utf8(*text)) : std::nullopt;
  }
  if (data.size() < 2) return std::nullopt;  // iTXt: compressed?, method, language, translated keyword, text
  const bool compressed = data[0] != 0;
  data.remove_prefix(2);
  if (!take_field(data) || !take_field(data)) return std::nullopt;
  if (!compressed) return plain(any_to_utf8);
  const auto text = inflated(data, limit, work);
  return text ? std::optional(any_to_utf8(*text)) : std::nullopt;
}

// Latin-1 for PNG leaves out the control characters of the upper half.
bool fits_text_chunk(const std::optional<std::string>& latin1) {
  return latin1 && std::none_of(latin1->begin(), latin1->end(), [](unsigned char c) { return c >= 0x7F && c < 0xA0; });
}

}  // namespace

std::optional<std::string> inflated(std::string_view compressed, size_t limit, size_t& work) {
  Inflater inflater;
  inflater.stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  inflater.stream.avail_in = static_cast<uInt>(compressed.size());  // a chunk has less than 2^31 bytes
  std::string text;
  char buffer[16384];
  while (work > 0) {
    inflater.stream.next_out = reinterpret_cast<Bytef*>(buffer);
    inflater.stream.avail_out = sizeof buffer;
    const int status = inflate(&inflater.stream, Z_NO_FLUSH);
    const size_t got = sizeof buffer - inflater.stream.avail_out;
    work -= std::min(work, got);
    if ((status != Z_OK && status != Z_STREAM_END) || got > limit - text.size()) return std::nullopt;
    text.append(buffer, got);
    if (status == Z_STREAM_END) return text;
  }
  return std::nullopt;
}

void for_each_png_chunk(std::span<const std::byte> bytes,
                        const std::function<void(std::string_view, std::span<const std::byte>)>& visit) {
  const ByteView file(bytes, std::endian::big);
  for (size_t at = kSignatureBytes; at + kChunkOverhead <= file.size();) {
    const size_t length = file.u32(at);
    if (length > file.size() - at - kChunkOverhead) return;
    const auto covered = file.part(at + 4, 4 + length);  // the checksum is over type and data
    const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(covered.data()), covered.size());
    if (sum == file.u32(at + 8 + length)) visit(file.text(at + 4, 4), covered.subspan(4));
    at += kChunkOverhead + length;
  }
}

TextEntries read_png_text(std::span<const std::byte> bytes, size_t max_bytes) {
  constexpr size_t kEntryBytes = 64;  // of an entry besides its texts: millions of empty ones are too many as well
  TextEntries entries;
  size_t left = max_bytes, work = max_bytes;
  for_each_png_chunk(bytes, [&](std::string_view type, std::span<const std::byte> chunk) {
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") return;
    std::string_view data(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    const auto keyword = take_field(data);
    if (!keyword || keyword->size() + kEntryBytes > left) return;
    auto text = read_text(type, data, left - keyword->size() - kEntryBytes, work);
    if (!text) return;
    left -= std::min(left, keyword->size() + kEntryBytes + text->size());  // Latin-1 may have become longer
    entries.emplace_back(latin1_to_utf8(*keyword), std::move(*text));
  });
  return entries;
}

PngChunk make_text_chunk(const std::string& keyword, const std::string& text) {
  const auto name = utf8_to_latin1(keyword);
  check(name && !name->empty() && name->size() <= 79, "PNG text keyword \"{}\": 1 to 79 Latin-1 characters are needed", keyword);
  check(is_utf8(text), "PNG text \"{}\" is not valid UTF-8", keyword);
  check(keyword.find('\0') == keyword.npos && text.find('\0') == text.npos, "PNG text \"{}\" holds a zero byte", keyword);
  const auto latin1 = utf8_to_latin1(text);
  if (fits_text_chunk(latin1)) return {"tEXt", *name + '\0' + *latin1};
  return {"iTXt", *name + std::string(5, '\0') + text};  // not compressed, no language, no translated keyword
}

}  // namespace flux2
