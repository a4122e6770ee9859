#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flux2 {

// A line of UTF-8 while it is typed, with a cursor between characters.
class LineBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // bytes before it
  std::string_view before_cursor() const { return std::string_view(text_).substr(0, cursor_); }

  void set(std::string text);  // the cursor goes to the end
  void insert(std::string_view bytes);
  void replace_before_cursor(size_t start, std::string_view with);  // from byte `start` to the cursor

  void left();
  void right();
  void word_left();
  void word_right();
  void home() { cursor_ = 0; }
  void end() { cursor_ = text_.size(); }

  void erase_left();
  void erase_right();
  // What is cut can be put back by paste().
  void cut_word_left();
  void cut_to_start();
  void cut_to_end();
  void paste() { insert(cut_); }

 private:
  void cut(size_t from, size_t to);

  std::string text_, cut_;
  size_t cursor_ = 0;
};

// Columns that text takes in a terminal: two for wide characters, none for combining ones.
int text_columns(std::string_view utf8);

// The part of a line that fits `columns` with the cursor in it, and the cursor's column there.
struct LineView {
  std::string text;
  int cursor = 0;
};
LineView visible_part(std::string_view utf8, size_t cursor, int columns);

}  // namespace flux2
