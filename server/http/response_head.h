#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace flux2 {

// "HTTP/1.1 404 Not Found" and the headers, ending in an empty line. Line breaks in values become spaces, so that no text of a
// client can add a header.
std::string head_text(int status, const Headers& headers);

std::string http_date(int64_t unix_seconds);  // "Sun, 06 Nov 1994 08:49:37 GMT"

// A file that is being sent.
struct SentFile {
  int fd = -1;
  uint64_t size = 0;

  SentFile() = default;
  SentFile(const SentFile&) = delete;
  SentFile& operator=(const SentFile&) = delete;
  ~SentFile();
};

// An answer that is ready to be written. Of a file, the bytes [begin, end) are sent; pieces are as many bytes together.
struct PreparedAnswer {
  int status = 200;
  Headers headers;  // without Connection and Date
  std::string body;
  std::shared_ptr<SentFile> file;
  std::function<std::string()> pieces;
  uint64_t begin = 0, end = 0;
};

// Applies If-None-Match, Range and If-Range to an answer, opens its file, and leaves out the body where the answer has none
// (HEAD, 204, 304). Throws NotFound or BadFile if the file cannot be sent.
PreparedAnswer prepare_answer(const ServerRequest& request, HttpResponse response);

// One range of "bytes=…" within a file of this size. Absent: the header is not understood, has several ranges, or the file is
// empty; the whole file is sent. An empty range: it lies outside (416).
struct ByteRange {
  uint64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};
std::optional<ByteRange> range_of(std::string_view header, uint64_t size);

// Whether a header If-None-Match names this tag; weak tags count.
bool names_etag(std::string_view header, std::string_view etag);

}  // namespace flux2
