#include "base/pattern.h"

#include <re2/re2.h>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr size_t kLongestPattern = 4096;
constexpr int64_t kCompiledBytes = 4 << 20;

// Names are bytes, which need not be UTF-8: each byte becomes the code point of its value. (RE2 has a mode for such texts,
// Latin-1, but in Debian 12's version "é|éa" is not found in "é" then: it looks for a common beginning in UTF-8.)
std::string code_points_of(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) out += static_cast<char>(0xC0 | byte >> 6), out += static_cast<char>(0x80 | (byte & 0x3F));
    else out += c;
  }
  return out;
}

std::string bytes_of(std::string_view code_points) {
  std::string out;
  for (size_t i = 0; i < code_points.size(); ++i) {
    const auto first = static_cast<unsigned char>(code_points[i]);
    const bool pair = first >= 0xC0 && i + 1 < code_points.size();
    out += pair ? static_cast<char>((first & 0x03) << 6 | (code_points[++i] & 0x3F)) : code_points[i];
  }
  return out;
}

RE2::Options pattern_options() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kCompiledBytes);
  return options;
}

// Our own sentences for what RE2 reports.
std::string reason_of(const RE2& compiled) {
  const std::string part =
      compiled.error_arg().empty() ? "" : fmt::format(" at \"{}\"", printable(bytes_of(compiled.error_arg())));
  switch (compiled.error_code()) {
    case RE2::ErrorBadPerlOp: return "looking ahead or behind and other (?…) groups are not supported" + part;
    case RE2::ErrorBadEscape: return "this escape is not supported (there are no back references)" + part;
    case RE2::ErrorBadCharClass:
    case RE2::ErrorBadCharRange: return "the character class is invalid" + part;
    case RE2::ErrorMissingBracket: return "a ] is missing" + part;
    case RE2::ErrorMissingParen: return "a ) is missing" + part;
    case RE2::ErrorUnexpectedParen: return "there is a ) without its (" + part;
    case RE2::ErrorTrailingBackslash: return "it ends with a backslash";
    case RE2::ErrorRepeatArgument: return "there is nothing to repeat" + part;
    case RE2::ErrorRepeatSize: return "the number of repetitions is too large" + part;
    case RE2::ErrorRepeatOp: return "the repetition is invalid" + part;
    case RE2::ErrorBadUTF8: return "it is not valid UTF-8";
    case RE2::ErrorBadNamedCapture: return "the name of a group is invalid" + part;
    case RE2::ErrorPatternTooLarge: return "it needs too much memory";
    default: return "it cannot be compiled";
  }
}

}  // namespace

struct Pattern::Compiled {
  RE2 expression;
};

Pattern::Pattern(const std::string& expression) : text_(expression) {
  check(expression.size() <= kLongestPattern, "the regular expression \"{}\" has {} bytes; at most {} are supported",
        printable(expression), expression.size(), kLongestPattern);
  auto compiled = std::shared_ptr<Compiled>(new Compiled{{code_points_of(expression), pattern_options()}});
  check(compiled->expression.ok(), "\"{}\" is not a valid regular expression: {}", printable(expression),
        reason_of(compiled->expression));
  compiled_ = std::move(compiled);
}

bool Pattern::found_in(std::string_view text) const { return RE2::PartialMatch(code_points_of(text), compiled_->expression); }
bool Pattern::matches(std::string_view text) const { return RE2::FullMatch(code_points_of(text), compiled_->expression); }

bool patterns_available() { return true; }

}  // namespace flux2
