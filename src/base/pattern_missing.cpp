#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"

namespace flux2 {

// The letters to compare; anchors say where they may lie.
struct Pattern::Compiled {
  struct Letter {
    char letter;
    bool any;
  };
  std::vector<Letter> letters;
  bool at_begin = false, at_end = false;

  bool lies_at(std::string_view text, size_t at) const {
    for (size_t i = 0; i < letters.size(); ++i)
      if (!letters[i].any && letters[i].letter != text[at + i]) return false;
    return true;
  }
};

Pattern::Pattern(const std::string& expression) : text_(expression) {
  auto compiled = std::make_shared<Compiled>();
  std::string_view rest = expression;
  compiled->at_begin = rest.starts_with('^');
  if (compiled->at_begin) rest.remove_prefix(1);
  compiled->at_end = rest.ends_with('$');
  if (compiled->at_end) rest.remove_suffix(1);
  bool plain = true;
  for (size_t i = 0; i < rest.size(); ++i) {
    const bool escaped = rest.substr(i, 2) == "\\.";
    if (escaped) ++i;
    const auto c = static_cast<unsigned char>(rest[i]);
    plain = plain && (std::isalnum(c) || c == '_' || c == '-' || c == '/' || c == '.' || c >= 0x80);
    compiled->letters.push_back({rest[i], rest[i] == '.' && !escaped});
  }
  check(
      plain,
      "this build has no RE2, so the regular expression \"{}\" cannot be used; only letters, digits, _, -, / and ., and ^ and $ "
      "at its ends are supported",
      printable(expression));
  compiled_ = std::move(compiled);
}

bool Pattern::found_in(std::string_view text) const {
  const size_t length = compiled_->letters.size();
  if (length > text.size()) return false;
  const size_t last = compiled_->at_begin ? 0 : text.size() - length;
  for (size_t at = compiled_->at_end ? text.size() - length : 0; at <= last; ++at)
    if (compiled_->lies_at(text, at)) return true;
  return false;
}

bool Pattern::matches(std::string_view text) const {
  return text.size() == compiled_->letters.size() && compiled_->lies_at(text, 0);
}

bool patterns_available() { return false; }

}  // namespace flux2
