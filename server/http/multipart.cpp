#include "server/http/multipart.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/http/multipart_head.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUploadPrefix = "upload-";
constexpr size_t kLongestPadding = 256;  // blanks between a boundary and its line end

int new_upload_file(const fs::path& folder, fs::path& path) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  std::string name = (folder / (std::string(kUploadPrefix) + "XXXXXX")).string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::CannotWrite, "An upload cannot be stored in {}: {}", folder.string(), std::strerror(errno));
  path = name;
  return fd;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::CannotWrite, "An upload cannot be stored: {}", std::strerror(n < 0 ? errno : ENOSPC));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::optional<std::string> form_boundary(std::string_view content_type) {
  if (lower_case(trimmed(content_type.substr(0, content_type.find(';')))) != "multipart/form-data") return std::nullopt;
  const auto boundary = parse_header_value(content_type).parameter("boundary");
  check(boundary && !boundary->empty(), "The form's Content-Type has no boundary.");
  // RFC 2046, 5.1.1: 1 to 70 characters, not ending in a blank.
  const bool allowed = boundary->size() <= 70 && boundary->back() != ' ' && std::ranges::all_of(*boundary, [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                                std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
                       });
  check(allowed, "The boundary of the form has more than 70 characters or one that is not allowed.");
  return boundary;
}

FormReader::FormReader(std::string_view boundary, const FormLimits& limits, fs::path folder)
    // The line break in front of the first boundary is that of the headers, which is not part of the body.
    : delimiter_("\r\n--" + std::string(boundary)), limits_(limits), folder_(std::move(folder)), pending_("\r\n") {}

FormReader::~FormReader() {
  close_file();
  remove_part_files(parts_);
}

void FormReader::add(std::string_view bytes) {
  if (state_ == State::End) return;  // an epilogue has no meaning
  pending_ += bytes;
  while (step()) {}
}

std::vector<FormPart> FormReader::finish() {
  check(state_ == State::End, "The form ends before its last boundary.");
  return std::exchange(parts_, {});
}

bool FormReader::step() {
  switch (state_) {
    case State::Preamble:
    case State::Content: return read_content();
    case State::Boundary: return read_boundary();
    case State::Head: return read_head();
    case State::End: break;
  }
  pending_.clear();
  return false;
}

bool FormReader::read_content() {
  const size_t at = pending_.find(delimiter_);
  // The end of what is here may be the beginning of a delimiter.
  const size_t known = at != pending_.npos ? at : pending_.size() - std::min(pending_.size(), delimiter_.size() - 1);
  if (state_ == State::Content) store(std::string_view(pending_).substr(0, known));
  if (at == pending_.npos) {
    pending_.erase(0, known);
    return false;
  }
  pending_.erase(0, at + delimiter_.size());
  if (state_ == State::Content) close_file();
  state_ = State::Boundary;
  return true;
}

bool FormReader::read_boundary() {
  if (pending_.size() < 2) return false;
  if (pending_.starts_with("--")) {
    state_ = State::End;
    return true;
  }
  const size_t text = pending_.find_first_not_of(" \t");
  check((text == pending_.npos ? pending_.size() : text) <= kLongestPadding, "The form has a boundary with too many blanks.");
  if (text == pending_.npos || (pending_[text] == '\r' && text + 1 == pending_.size())) return false;
  check(pending_[text] == '\r' && pending_[text + 1] == '\n', "The form has text after a boundary.");
  pending_.erase(0, text);  // the line break stays: it may be the first half of the end of an empty head
  state_ = State::Head;
  return true;
}

bool FormReader::read_head() {
  const size_t end = pending_.find("\r\n\r\n");
  check((end == pending_.npos ? pending_.size() : end) <= limits_.header_bytes, "A part of the form has headers of more than {}.",
        byte_text(limits_.header_bytes));
  if (end == pending_.npos) return false;
  begin_part(std::string_view(pending_).substr(2, std::max<size_t>(end, 2) - 2));
  pending_.erase(0, end + 4);
  state_ = State::Content;
  return true;
}

void FormReader::begin_part(std::string_view head) {
  check(parts_.size() < limits_.parts, "The form has more than {} parts.", limits_.parts);
  PartHead read = parse_part_head(head, limits_.headers);
  FormPart part;
  part.name = std::move(read.name);
  part.file_name = std::move(read.file_name);
  part.content_type = std::move(read.content_type);
  part.is_file = read.is_file;
  parts_.push_back(std::move(part));
}

void FormReader::store(std::string_view bytes) {
  if (bytes.empty()) return;
  FormPart& part = parts_.back();
  part.bytes += bytes.size();
  if (fd_ < 0 && part.bytes > limits_.part_in_memory) move_to_file(part);
  if (fd_ >= 0) write_all(fd_, bytes);
  else part.data += bytes;
}

void FormReader::move_to_file(FormPart& part) {
  fd_ = new_upload_file(folder_, part.file);
  write_all(fd_, part.data);
  part.data = {};
}

void FormReader::close_file() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void remove_part_files(const std::vector<FormPart>& parts) {
  std::error_code ignored;
  for (const FormPart& part : parts)
    if (!part.file.empty()) fs::remove(part.file, ignored);
}

void remove_stale_uploads(const fs::path& folder) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (!at->path().filename().string().starts_with(kUploadPrefix) || !at->is_regular_file(ignored)) continue;
    const auto written = at->last_write_time(ignored);
    if (!ignored && now - written > std::chrono::hours(1)) fs::remove(at->path(), ignored);
  }
}

}  // namespace flux2
