#include "server/http/exchange.h"

#include <fmt/format.h>

namespace flux2 {
namespace {

// "data: a\ndata: b\n" for "a\nb". All three line ends of the format end a line, so that no text can begin a field of its own.
void add_lines(std::string& out, std::string_view field, std::string_view text) {
  size_t begin = 0;
  while (true) {
    const size_t end = text.find_first_of("\r\n", begin);
    out.append(field).append(text.substr(begin, end - begin)) += '\n';
    if (end == text.npos) return;
    begin = end + (text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n' ? 2 : 1);
  }
}

}  // namespace

std::string EventStream::text_of(int64_t id, std::string_view name, std::string_view data) {
  std::string text;
  text.reserve(name.size() + data.size() + 48);
  if (id != 0) text += fmt::format("id: {}\n", id);
  if (!name.empty()) text.append("event: ").append(name.substr(0, name.find_first_of("\r\n"))) += '\n';
  add_lines(text, "data: ", data);
  text += '\n';
  return text;
}

std::string EventStream::text_of_comment(std::string_view comment) {
  std::string text;
  add_lines(text, ": ", comment);
  text += '\n';
  return text;
}

bool EventStream::event(int64_t id, std::string_view name, std::string_view data, Keep keep) const {
  return channel_->send(text_of(id, name, data), keep);
}

bool EventStream::comment(std::string_view text) const { return channel_->send(text_of_comment(text), Keep::IfRoom); }

}  // namespace flux2
