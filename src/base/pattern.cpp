#include "base/pattern.h"

#include <re2/re2.h>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr size_t kLongestPattern = 4096;
constexpr int64_t kCompiledBytes = 4 << 20;

re2::StringPiece piece(std::string_view text) { return {text.data(), text.size()}; }

RE2::Options pattern_options() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kCompiledBytes);
  options.set_encoding(RE2::Options::EncodingLatin1);  // names are bytes; UTF-8 inside a pattern is compared byte by byte
  return options;
}

// Our own sentences for what RE2 reports.
std::string reason_of(const RE2& compiled) {
  const std::string part = compiled.error_arg().empty() ? "" : fmt::format(" at \"{}\"", printable(compiled.error_arg()));
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
  auto compiled = std::shared_ptr<Compiled>(new Compiled{{expression, pattern_options()}});
  check(compiled->expression.ok(), "\"{}\" is not a valid regular expression: {}", printable(expression),
        reason_of(compiled->expression));
  compiled_ = std::move(compiled);
}

bool Pattern::found_in(std::string_view text) const { return RE2::PartialMatch(piece(text), compiled_->expression); }
bool Pattern::matches(std::string_view text) const { return RE2::FullMatch(piece(text), compiled_->expression); }

bool patterns_available() { return true; }

}  // namespace flux2
