#include "weights/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "weights/safetensors_header.h"

namespace flux2 {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr const char* kDownloadAgain = "download the file again";

// What people often have in place of the model. Only asked once the container has turned out wrong: the length of a
// good file may begin with the same byte as a web page.
void refuse_other_formats(std::string_view text) {
  const auto begins = [&](std::string_view mark) { return text.substr(0, mark.size()) == mark; };
  if (begins("version https://git-lfs.github.com/spec/v1"))
    throw Error(ErrorCode::BadFile, "this is a Git LFS pointer, not the model", "download the real file with git lfs pull");
  if (begins("GGUF")) fail(ErrorCode::BadFile, "this is a GGUF file, not safetensors");
  const bool zip = begins("PK\x03\x04");
  const bool pickle = text.size() >= 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  if (zip || pickle)
    throw Error(ErrorCode::BadFile, "this is a PyTorch pickle or a zip archive, not safetensors",
                "reading a pickle can run code; look for a .safetensors file of the model");
  if (begins("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '<')
    throw Error(ErrorCode::BadFile, "this is a web page, not the model",
                "the download needs a login or an accepted licence, or the address was wrong");
}

bool is_text(std::string_view text) {
  constexpr size_t kLookedAt = 4096;
  text = text.substr(0, kLookedAt);
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t'; });
}

uint64_t header_length(std::span<const std::byte> bytes) {
  uint64_t n = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) n |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return n;
}

std::string_view header_text(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (bytes.size() < kLengthBytes) {
    refuse_other_formats(text);
    throw Error(ErrorCode::BadFile, fmt::format("the file has {} bytes, too few for a safetensors file", bytes.size()),
                kDownloadAgain);
  }
  const uint64_t length = header_length(bytes), room = bytes.size() - kLengthBytes;
  const bool starts_right = length >= 2 && length <= kMaxSafetensorsHeader && room > 0 && text[kLengthBytes] == '{';
  if (!starts_right) {
    refuse_other_formats(text);
    if (room > 0 && text[kLengthBytes] != '{' && (length < 2 || length > room))
      fail(ErrorCode::BadFile, "{}",
           is_text(text) ? "this is a text file, not a model" : "this is not a safetensors or GGUF file");
    if (length < 2) fail(ErrorCode::BadFile, "not a safetensors file: a header of {} bytes is too short", length);
    if (length > kMaxSafetensorsHeader)
      fail(ErrorCode::BadFile, "not a safetensors file: a header of {} bytes is over the limit of {}", length,
           kMaxSafetensorsHeader);
    if (room > 0) fail(ErrorCode::BadFile, "not a safetensors file: the header does not begin with {{");
  }
  if (length > room)
    throw Error(ErrorCode::BadFile,
                fmt::format("the file is incomplete: its header alone needs {} bytes, the file has {}", length + kLengthBytes,
                            bytes.size()),
                kDownloadAgain);
  return text.substr(kLengthBytes, length);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, const Log& log) {
  auto file = MappedFile::open(path);
  const Log named([&](LogLevel, const std::string& line) { log.warn("{}: {}", path.string(), line); });
  in_context(path.string(), [&] { read(file->bytes(), file, named); });
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const Log& log) { read(bytes, nullptr, log); }

void SafetensorsFile::read(std::span<const std::byte> bytes, std::shared_ptr<const MappedFile> file, const Log& log) {
  const std::string_view text = header_text(bytes);
  SafetensorsHeader header = parse_safetensors_header(text, log);
  const auto data = bytes.subspan(kLengthBytes + text.size());
  const uint64_t total = kLengthBytes + text.size() + header.data_size();
  if (header.data_size() > data.size())
    throw Error(ErrorCode::BadFile, fmt::format("the file is incomplete: {} bytes expected, {} found", total, bytes.size()),
                kDownloadAgain);
  if (header.data_size() < data.size())
    throw Error(ErrorCode::BadFile,
                fmt::format("the file is damaged: {} bytes expected, {} found after its last tensor", total, bytes.size()),
                kDownloadAgain);

  tensors_.reserve(header.tensors.size());
  for (auto& t : header.tensors) {
    auto dtype = dtype_named(t.dtype);
    if (dtype && is_block_type(*dtype)) dtype.reset();  // GGUF's types: the format does not define them
    tensors_.push_back({std::move(t.name), std::move(t.dtype), dtype, t.shape, data.subspan(t.begin, t.end - t.begin), file});
  }
  metadata_ = std::move(header.metadata);
}

}  // namespace flux2
