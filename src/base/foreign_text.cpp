#include "base/foreign_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/text.h"

namespace flux2 {

namespace {

// The code point at the start of a text and the number of its bytes; no bytes where the text is not UTF-8.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;
};

CodePoint first_code_point(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (bytes > text.size() || !is_utf8(text.substr(0, bytes))) return {};
  if (bytes == 1) return {lead, 1};
  uint32_t value = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) value = (value << 6) | (static_cast<unsigned char>(text[i]) & 0x3fu);
  return {value, bytes};
}

bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c <= 0x9f); }

// Marks and overrides of the direction of text, and separators that some programs show as line breaks.
bool changes_layout(uint32_t c) {
  return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

bool is_plain_name(std::string_view text) {
  constexpr size_t kLongestName = 255;  // of a file
  if (text.empty() || text.size() > kLongestName || text == "." || text == ".." || !is_utf8(text)) return false;
  for (const char c : text)
    if (c == '/' || c == '\\' || is_control(static_cast<unsigned char>(c) < 0x80 ? static_cast<unsigned char>(c) : 'a'))
      return false;
  return true;
}

std::string visible_text(std::string_view text, LineBreaks breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [c, bytes] = first_code_point(text);
    if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const bool kept = c == '\t' || (c == '\n' && breaks == LineBreaks::Keep);
    if (!kept && (is_control(c) || changes_layout(c))) out += fmt::format("\\u{:04x}", c);
    else out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

std::string visible_message(std::string_view text) {
  constexpr std::string_view kIndent = "  ";
  const std::string visible = visible_text(text);
  std::string out;
  out.reserve(visible.size());
  for (size_t i = 0; i < visible.size(); ++i) {
    out += visible[i];
    const bool line_begins = visible[i] == '\n' && i + 1 < visible.size();
    if (line_begins && visible.compare(i + 1, kIndent.size(), kIndent) != 0) out += kIndent;
  }
  return out;
}

}  // namespace flux2
