#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace flux2 {

// A regular expression that may come from anyone: matching takes time linear in the text, and compiling takes bounded memory.
//
// The syntax is RE2's, which is that of Python and Perl without back references (\1) and without looking ahead or behind ((?=…),
// (?!…), (?<=…)). pattern.cpp uses RE2. In a build without it (pattern_missing.cpp) only plain patterns are supported: letters,
// digits, `_`, `-`, `/`, `.` for any one character, `\.` for a dot, `^` and `$` at the ends. Everything else is refused with a
// sentence that says so.
class Pattern {
 public:
  // Throws InvalidArgument with the expression and the reason if it is not valid.
  explicit Pattern(const std::string& expression);

  bool found_in(std::string_view text) const;  // somewhere in it
  bool matches(std::string_view text) const;   // all of it

  const std::string& text() const { return text_; }

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

bool patterns_available();  // whether this build has RE2

}  // namespace flux2
