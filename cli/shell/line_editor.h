#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/line_buffer.h"
#include "cli/shell/line_history.h"

namespace flux2 {

// What may follow the text before the cursor: candidates that replace it from byte `start` on.
struct Completion {
  size_t start = 0;
  std::vector<std::string> candidates;
};
using Completer = std::function<Completion(std::string_view before_cursor)>;

struct EnteredLine {
  enum Kind { Line, Interrupted, End } kind = End;  // Interrupted: Ctrl-C; End: Ctrl-D or no more input
  std::string text;
};

// Reads lines from standard input. From a terminal they can be edited: arrows, Home, End, Ctrl-A/E/B/F/K/U/W/Y/L, words with
// Alt-B/F or Ctrl-arrows, history with Up and Down, completion with Tab. From anything else they are taken as they come.
class LineEditor {
 public:
  LineEditor(LineHistory& history, Completer complete);

  bool is_terminal() const { return terminal_; }
  EnteredLine read(const std::string& prompt);

 private:
  EnteredLine read_plain();
  int key();  // a byte, or one of the codes of line_editor.cpp
  int escape_sequence();
  void draw() const;
  void complete();
  void recall(int step);

  LineHistory& history_;
  Completer completer_;
  bool terminal_;
  std::string prompt_;
  LineBuffer line_;
  size_t recalled_ = 0;     // position in the history; its size: the line being written
  std::string unfinished_;  // that line, while others are recalled
};

}  // namespace flux2
