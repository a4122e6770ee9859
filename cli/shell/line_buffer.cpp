#include "cli/shell/line_buffer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace flux2 {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

size_t next(std::string_view text, size_t at) {
  if (at < text.size()) ++at;
  while (at < text.size() && continues(text[at])) ++at;
  return at;
}

size_t previous(std::string_view text, size_t at) {
  if (at > 0) --at;
  while (at > 0 && continues(text[at])) --at;
  return at;
}

uint32_t code_point(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return byte;
  uint32_t value = byte & (byte >= 0xf0 ? 0x07 : byte >= 0xe0 ? 0x0f : 0x1f);
  for (size_t i = at + 1; i < next(text, at); ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  return value;
}

// Blocks of wide and of combining characters, coarsely: enough to keep the cursor where the letters are.
int columns_of(uint32_t c) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 5> kNone = {
      {{0x0300, 0x036f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}}};
  constexpr std::array<std::pair<uint32_t, uint32_t>, 7> kTwo = {{{0x1100, 0x115f},
                                                                  {0x2e80, 0xa4cf},
                                                                  {0xac00, 0xd7a3},
                                                                  {0xf900, 0xfaff},
                                                                  {0xfe30, 0xfe6f},
                                                                  {0xff00, 0xff60},
                                                                  {0x1f300, 0x3fffd}}};
  const auto in = [c](const auto& range) { return c >= range.first && c <= range.second; };
  if (std::any_of(kNone.begin(), kNone.end(), in)) return 0;
  return std::any_of(kTwo.begin(), kTwo.end(), in) ? 2 : 1;
}

}  // namespace

void LineBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void LineBuffer::insert(std::string_view bytes) {
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void LineBuffer::replace_before_cursor(size_t start, std::string_view with) {
  text_.replace(start, cursor_ - start, with);
  cursor_ = start + with.size();
}

void LineBuffer::left() { cursor_ = previous(text_, cursor_); }
void LineBuffer::right() { cursor_ = next(text_, cursor_); }

void LineBuffer::word_left() {
  while (cursor_ > 0 && text_[cursor_ - 1] == ' ') --cursor_;
  while (cursor_ > 0 && text_[cursor_ - 1] != ' ') --cursor_;
}

void LineBuffer::word_right() {
  while (cursor_ < text_.size() && text_[cursor_] == ' ') ++cursor_;
  while (cursor_ < text_.size() && text_[cursor_] != ' ') ++cursor_;
}

void LineBuffer::erase_left() {
  const size_t start = previous(text_, cursor_);
  text_.erase(start, cursor_ - start);
  cursor_ = start;
}

void LineBuffer::erase_right() { text_.erase(cursor_, next(text_, cursor_) - cursor_); }

void LineBuffer::cut(size_t from, size_t to) {
  if (from == to) return;
  cut_ = text_.substr(from, to - from);
  text_.erase(from, to - from);
  cursor_ = from;
}

void LineBuffer::cut_word_left() {
  const size_t end = cursor_;
  word_left();
  cut(cursor_, end);
}

void LineBuffer::cut_to_start() { cut(0, cursor_); }
void LineBuffer::cut_to_end() { cut(cursor_, text_.size()); }

int text_columns(std::string_view utf8) {
  int columns = 0;
  for (size_t at = 0; at < utf8.size(); at = next(utf8, at)) columns += columns_of(code_point(utf8, at));
  return columns;
}

LineView visible_part(std::string_view utf8, size_t cursor, int columns) {
  size_t start = 0;
  while (start < cursor && text_columns(utf8.substr(start, cursor - start)) >= columns) start = next(utf8, start);
  size_t end = cursor;
  int used = text_columns(utf8.substr(start, cursor - start));
  LineView view{{}, used};
  while (end < utf8.size() && used + columns_of(code_point(utf8, end)) < columns) {
    used += columns_of(code_point(utf8, end));
    end = next(utf8, end);
  }
  view.text = utf8.substr(start, end - start);
  return view;
}

}  // namespace flux2
