#include "text/pretokenize.h"

#include <limits>
#include <tuple>
#include <utility>

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

size_t end_of_run(std::string_view text, size_t pos, CharClass kind, int most = std::numeric_limits<int>::max()) {
  for (Char c = char_at(text, pos); pos < text.size() && c.kind == kind && most > 0; c = char_at(text, pos), --most) pos = c.end;
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

size_t match_end(std::string_view text, size_t pos, int digits) {
  const Char c = char_at(text, pos);
  if (c.code == '\'') {
    if (const size_t end = contraction_end(text, c.end)) return end;
  }
  if (c.kind == CharClass::Letter) return end_of_run(text, c.end, CharClass::Letter);
  if (c.kind == CharClass::Number) return end_of_run(text, c.end, CharClass::Number, digits - 1);

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

// The letters and marks from `pos` on that Tekken keeps together: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]* as far as it goes ("heads"),
// then
// [\p{Ll}\p{Lm}\p{Lo}\p{M}]+ ("tails").
struct CasedWord {
  size_t end = 0;        // of heads and tails, if at least one tail can be had; 0 if not
  size_t heads_end = 0;  // of the heads alone
};

CasedWord cased_word(std::string_view text, size_t pos) {
  CasedWord word;
  size_t at = pos;
  const auto next = [&] {
    size_t end = at;
    const Casing casing = at < text.size() ? casing_of(next_code_point(text, end)) : Casing::None;
    return std::pair(casing, end);
  };
  for (auto [casing, end] = next(); casing != Casing::None && casing != Casing::Lower; std::tie(casing, end) = next()) {
    at = end;
    if (casing != Casing::Upper) word.end = end;  // heads may give back what follows the last letter that can be a tail
  }
  word.heads_end = at;
  for (auto [casing, end] = next(); casing != Casing::None && casing != Casing::Upper; std::tie(casing, end) = next())
    word.end = at = end;
  return word;
}

size_t tekken_match_end(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  if (c.kind == CharClass::Number) return c.end;
  const bool may_lead = c.kind != CharClass::Letter && !is_newline(c.code);
  const CasedWord after = may_lead ? cased_word(text, c.end) : CasedWord{}, whole = cased_word(text, pos);
  if (after.end) return after.end;
  if (whole.end) return whole.end;
  if (may_lead && after.heads_end > c.end) return after.heads_end;
  if (whole.heads_end > pos) return whole.heads_end;

  const Char symbol = c.code == ' ' ? char_at(text, c.end) : c;  //  ?[^\s\p{L}\p{N}]+[\r\n/]*
  if (symbol.kind == CharClass::Other) {
    size_t end = end_of_run(text, symbol.end, CharClass::Other);
    while (end < text.size() && (is_newline(text[end]) || text[end] == '/')) ++end;
    return end;
  }
  return whitespace_end(text, pos);
}

}  // namespace

std::string_view pattern_of(SplitRule rule) {
  switch (rule) {
    case SplitRule::Qwen: return kQwenSplitPattern;
    case SplitRule::Mistral: return kMistralSplitPattern;
    case SplitRule::Tekken: return kTekkenSplitPattern;
  }
  return {};
}

std::optional<SplitRule> split_rule_of(std::string_view pattern) {
  for (SplitRule rule : {SplitRule::Qwen, SplitRule::Mistral, SplitRule::Tekken})
    if (pattern == pattern_of(rule)) return rule;
  return std::nullopt;
}

std::vector<std::string_view> pretokenize(std::string_view text, SplitRule rule) {
  std::vector<std::string_view> pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end =
        rule == SplitRule::Tekken ? tekken_match_end(text, pos) : match_end(text, pos, rule == SplitRule::Mistral ? 3 : 1);
    pieces.push_back(text.substr(pos, end - pos));
    pos = end;
  }
  return pieces;
}

}  // namespace flux2
