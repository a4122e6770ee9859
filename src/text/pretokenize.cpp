#include "text/pretokenize.h"

#include "text/unicode.h"

namespace flux2 {

namespace {

struct Char {
  char32_t code;
  CharClass kind;
  size_t end;  // where the next one begins
};

// Past the end there is a Space of code 0 and no length, which stops every run and starts no rule.
Char char_at(std::string_view text, size_t pos) {
  if (pos == text.size()) return {0, CharClass::Space, pos};
  const char32_t code = next_code_point(text, pos);
  return {code, char_class(code), pos};
}

bool is_newline(char32_t code) { return code == '\r' || code == '\n'; }

size_t end_of_run(std::string_view text, size_t pos, CharClass kind) {
  for (Char c = char_at(text, pos); pos < text.size() && c.kind == kind; c = char_at(text, pos)) pos = c.end;
  return pos;
}

// Case folding as far as the contractions need it: U+017F, the long s, is the only other letter that folds into them.
char32_t fold(char32_t code) {
  if (code >= 'A' && code <= 'Z') return code - 'A' + 'a';
  return code == 0x17F ? U's' : code;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) from behind the apostrophe; 0 where none follows.
size_t contraction_end(std::string_view text, size_t pos) {
  const Char first = char_at(text, pos);
  const char32_t a = fold(first.code);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.end;
  const Char second = char_at(text, first.end);
  const char32_t b = fold(second.code);
  const bool found = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return found ? second.end : 0;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ where the text at `pos` is white space: through the last newline of the run if it has one;
// otherwise all of a run that ends the text, and all but the last character of another, which joins what follows.
size_t whitespace_end(std::string_view text, size_t pos) {
  size_t end = pos, last = pos, newline_end = 0;
  for (Char c = char_at(text, pos); end < text.size() && c.kind == CharClass::Space; c = char_at(text, end)) {
    last = end;
    end = c.end;
    if (is_newline(c.code)) newline_end = end;
  }
  if (newline_end != 0) return newline_end;
  return end == text.size() || last == pos ? end : last;
}

size_t match_end(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  if (c.code == '\'') {
    if (const size_t end = contraction_end(text, c.end)) return end;
  }
  if (c.kind == CharClass::Letter) return end_of_run(text, c.end, CharClass::Letter);
  if (c.kind == CharClass::Number) return c.end;

  const Char next = char_at(text, c.end);  // [^\r\n\p{L}\p{N}]?\p{L}+ with its optional first character
  if (next.kind == CharClass::Letter && !is_newline(c.code)) return end_of_run(text, next.end, CharClass::Letter);

  const Char& symbol = c.code == ' ' ? next : c;  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  if (symbol.kind == CharClass::Other) {
    size_t end = end_of_run(text, symbol.end, CharClass::Other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  return whitespace_end(text, pos);
}

}  // namespace

std::vector<std::string_view> pretokenize(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = match_end(text, pos);
    pieces.push_back(text.substr(pos, end - pos));
    pos = end;
  }
  return pieces;
}

}  // namespace flux2
