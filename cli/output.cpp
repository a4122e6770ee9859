#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/foreign_text.h"

namespace flux2 {

namespace {

std::FILE* stream_of(Channel channel) { return channel == Channel::Result ? stdout : stderr; }

bool write_all(Channel channel, const void* bytes, size_t size) {
  std::FILE* stream = stream_of(channel);
  return std::fwrite(bytes, 1, size, stream) == size && std::fflush(stream) == 0;
}

}  // namespace

int descriptor_of(Channel channel) { return channel == Channel::Result ? STDOUT_FILENO : STDERR_FILENO; }

bool is_terminal(Channel channel) { return ::isatty(descriptor_of(channel)) != 0; }

int terminal_columns(Channel channel) {
  winsize window{};
  return ::ioctl(descriptor_of(channel), TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

void write_text(Channel channel, std::string_view text) {
  const std::string visible = visible_text(text);
  if (channel == Channel::Result) write_result_bytes(std::as_bytes(std::span(visible)));
  else write_all(channel, visible.data(), visible.size());  // there is nowhere to report that a message cannot be written
}

void write_last_words(std::string_view text) noexcept {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) { /* nobody to tell */
  }
}

void write_sequence(Channel channel, std::string_view bytes) { write_all(channel, bytes.data(), bytes.size()); }

void write_result_bytes(std::span<const std::byte> bytes) {
  if (!write_all(Channel::Result, bytes.data(), bytes.size()))
    fail(ErrorCode::CannotWrite, "cannot write to standard output: {}", std::strerror(errno));
}

bool LogFile::open(const std::filesystem::path& path) {
  file_.open(path, std::ios::app);
  return file_.is_open();
}

void LogFile::line(std::string_view text) {
  if (file_.is_open()) file_ << visible_message(text) << std::endl;
}

}  // namespace flux2
