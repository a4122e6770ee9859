#include "server/http/multipart_head.h"

#include <algorithm>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/text.h"

namespace flux2 {
namespace {

bool is_token_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token_letter); }

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

// Browsers do not escape backslashes, so one counts only in front of a quote or another backslash.
std::string take_quoted(std::string_view& text) {
  std::string out;
  text.remove_prefix(1);
  while (!text.empty()) {
    char c = text.front();
    text.remove_prefix(1);
    if (c == '"') return out;
    if (c == '\\' && !text.empty() && (text.front() == '"' || text.front() == '\\')) {
      c = text.front();
      text.remove_prefix(1);
    }
    out += c;
  }
  fail(ErrorCode::InvalidArgument, "A header has an unclosed quote.");
}

// Browsers write a quote in a name as %22 and line breaks as %0D and %0A, and nothing else.
std::string browser_unescaped(std::string text) {
  for (const auto& [escaped, plain] : {std::pair{"%22", "\""}, std::pair{"%0D", "\r"}, std::pair{"%0A", "\n"}})
    for (size_t at = 0; (at = text.find(escaped, at)) != text.npos; ++at) text.replace(at, 3, plain);
  return text;
}

void read_disposition(std::string_view text, PartHead& head) {
  const HeaderValue value = parse_header_value(text);
  check(value.value == "form-data", "A part of the form is not of the kind form-data.");
  const auto name = value.parameter("name");
  check(name && !name->empty(), "A part of the form has no name.");
  head.name = browser_unescaped(*name);
  check(is_utf8(head.name) && head.name.find('\0') == head.name.npos, "The name of a part of the form is not UTF-8.");
  const auto file = value.parameter("filename"), extended = value.parameter("filename*");
  head.is_file = file || extended;
  head.file_name = visible_text(browser_unescaped(file ? *file : extended.value_or("")), LineBreaks::Escape);
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::optional<std::string> HeaderValue::parameter(std::string_view name) const {
  for (const auto& [key, text] : parameters)
    if (key == name) return text;
  return std::nullopt;
}

HeaderValue parse_header_value(std::string_view text) {
  HeaderValue out;
  const size_t first = std::min(text.find(';'), text.size());
  out.value = lower_case(trimmed(text.substr(0, first)));
  text.remove_prefix(first);
  while (true) {
    skip_blanks(text);
    if (text.empty()) return out;
    check(text.front() == ';', "A header has text after a quoted value.");
    text.remove_prefix(1);
    skip_blanks(text);
    if (text.empty() || text.front() == ';') continue;
    const size_t equals = text.find('=');
    check(equals != text.npos && is_token(text.substr(0, equals)), "A header has a parameter without a name or value.");
    const std::string name = lower_case(text.substr(0, equals));
    text.remove_prefix(equals + 1);
    std::string value;
    if (!text.empty() && text.front() == '"') {
      value = take_quoted(text);
    } else {
      const size_t end = std::min(text.find(';'), text.size());
      value = trimmed(text.substr(0, end));
      text.remove_prefix(end);
    }
    check(!out.parameter(name), "A header has the parameter {} twice.", printable(name));
    out.parameters.emplace_back(name, std::move(value));
  }
}

PartHead parse_part_head(std::string_view lines, size_t most_headers) {
  PartHead head;
  bool disposed = false;
  size_t count = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    check(++count <= most_headers, "A part of the form has more than {} headers.", most_headers);
    check(line.find_first_of(std::string_view("\r\n\0", 3)) == line.npos, "A header of the form has a stray line break or NUL.");
    const size_t colon = line.find(':');
    check(colon != line.npos && is_token(line.substr(0, colon)), "A header of the form has no name.");
    const std::string name = lower_case(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-disposition") {
      check(!disposed, "A part of the form has two Content-Disposition headers.");
      disposed = true;
      read_disposition(value, head);
    } else if (name == "content-type") {
      head.content_type = visible_text(value, LineBreaks::Escape);
    } else if (name == "content-transfer-encoding") {
      const std::string encoding = lower_case(value);
      check(encoding == "binary" || encoding == "8bit" || encoding == "7bit",
            "A part of the form has the transfer encoding {}. Send the bytes without an encoding.", printable(encoding));
    }
  }
  check(disposed, "A part of the form has no Content-Disposition header.");
  return head;
}

}  // namespace flux2
