#include "server/http/response_head.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "base/error.h"
#include "base/own_file.h"
#include "base/text.h"

namespace flux2 {
namespace {

const char* reason_of(int status) {
  switch (status) {
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 424: return "Failed Dependency";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return status < 400 ? "OK" : "Error";
  }
}

std::optional<uint64_t> number_of(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string_view without_weakness(std::string_view tag) { return tag.starts_with("W/") ? tag.substr(2) : tag; }

std::string quoted_tag(const std::string& etag) {
  return etag.empty() || etag.front() == '"' || etag.starts_with("W/") ? etag : "\"" + etag + "\"";
}

// Opens the file. Its tag, unless the handler gave one, is its size and the time of its last change.
std::shared_ptr<SentFile> opened(const std::filesystem::path& path, std::string& etag) {
  auto file = std::make_shared<SentFile>();
  file->fd = open_regular_file(path);
  struct stat status {};
  if (::fstat(file->fd, &status) != 0) fail(ErrorCode::BadFile, "a file cannot be read");
  file->size = static_cast<uint64_t>(status.st_size);
  if (etag.empty())
    etag =
        fmt::format("\"{:x}-{:x}-{:x}\"", status.st_mtim.tv_sec, status.st_mtim.tv_nsec, static_cast<uint64_t>(status.st_size));
  return file;
}

void choose_range(const ServerRequest& request, const std::string& etag, PreparedAnswer& answer) {
  answer.end = answer.file->size;
  answer.headers.emplace_back("accept-ranges", "bytes");
  const std::string_view if_range = request.header("if-range");
  // A weak tag or a date does not promise the same bytes.
  if (request.header("range").empty() || (!if_range.empty() && if_range != etag)) return;
  const auto range = range_of(request.header("range"), answer.file->size);
  if (!range) return;
  if (range->begin == range->end) {
    answer.status = 416;
    answer.headers.emplace_back("content-range", fmt::format("bytes */{}", answer.file->size));
    answer.end = 0;
    return;
  }
  answer.status = 206;
  answer.begin = range->begin;
  answer.end = range->end;
  answer.headers.emplace_back("content-range", fmt::format("bytes {}-{}/{}", range->begin, range->end - 1, answer.file->size));
}

}  // namespace

SentFile::~SentFile() {
  if (fd >= 0) ::close(fd);
}

std::string http_date(int64_t unix_seconds) {
  static constexpr std::array days = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = static_cast<std::time_t>(unix_seconds);
  std::tm t{};
  ::gmtime_r(&time, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                     months[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string head_text(int status, const Headers& headers) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  for (const auto& [name, value] : headers) {
    text.append(name).append(": ");
    for (const char c : value) text += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;
    text += "\r\n";
  }
  text += "\r\n";
  return text;
}

bool names_etag(std::string_view header, std::string_view etag) {
  if (etag.empty()) return false;
  while (!header.empty()) {
    const std::string_view tag = trimmed(header.substr(0, header.find(',')));
    header.remove_prefix(std::min(header.find(',') == header.npos ? header.size() : header.find(',') + 1, header.size()));
    if (tag == "*" || without_weakness(tag) == without_weakness(etag)) return true;
  }
  return false;
}

std::optional<ByteRange> range_of(std::string_view header, uint64_t size) {
  if (!header.starts_with("bytes=") || size == 0) return std::nullopt;
  const std::string_view text = trimmed(header.substr(6));
  const size_t dash = text.find('-');
  if (dash == text.npos || text.find(',') != text.npos) return std::nullopt;
  const auto first = number_of(text.substr(0, dash)), last = number_of(text.substr(dash + 1));
  if (dash == 0) {  // the last so many bytes
    if (!last) return std::nullopt;
    return *last == 0 ? ByteRange{} : ByteRange{size - std::min(*last, size), size};
  }
  if (!first || (!last && dash + 1 != text.size())) return std::nullopt;
  if (last && *last < *first) return std::nullopt;
  if (*first >= size) return ByteRange{};
  return ByteRange{*first, last && *last < size - 1 ? *last + 1 : size};
}

PreparedAnswer prepare_answer(const ServerRequest& request, HttpResponse response) {
  PreparedAnswer answer;
  answer.status = response.status;
  answer.headers = std::move(response.headers);
  answer.headers.emplace_back("x-request-id", request.id);
  if (!response.file.empty()) answer.file = opened(response.file, response.etag);
  const std::string etag = quoted_tag(response.etag);
  if (!etag.empty()) answer.headers.emplace_back("etag", etag);

  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && answer.status == 200 && names_etag(request.header("if-none-match"), etag)) {
    answer.status = 304;
    answer.file.reset();
    return answer;
  }
  if (answer.status == 204 || answer.status == 304) {
    answer.file.reset();
    return answer;
  }
  if (response.pieces) {
    answer.pieces = std::move(response.pieces);
    answer.end = response.pieces_size;
  } else if (answer.file) {
    answer.end = answer.file->size;
    if (reads && answer.status == 200) choose_range(request, etag, answer);
  } else {
    answer.body = std::move(response.body);
    answer.end = answer.body.size();
  }
  if (!response.content_type.empty()) answer.headers.emplace_back("content-type", response.content_type);
  answer.headers.emplace_back("content-length", std::to_string(answer.end - answer.begin));
  if (request.method == "HEAD") {
    answer.file.reset();
    answer.pieces = {};
    answer.body.clear();
    answer.begin = answer.end = 0;
  }
  return answer;
}

}  // namespace flux2
