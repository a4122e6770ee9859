#pragma once

#include <fmt/core.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// What went wrong, for programs. Front ends translate it: the command line to an exit status, a server to an HTTP status.
enum class ErrorCode {
  Internal,         // a bug of ours: a condition that must hold does not
  InvalidArgument,  // the caller asked for something that cannot be done
  NotFound,         // a file or model that was named does not exist
  BadFile,          // a file is damaged, truncated or not what it claims to be
  Incompatible,     // a file is fine but does not fit here (another model family, another size)
  OutOfMemory,
  Device,  // a GPU or its driver failed
  CannotWrite,
  Network,
  Refused,  // by a content filter
  Cancelled,
};

const char* name_of(ErrorCode code);

// Something the user can do about an error, in a form that programs can read. `name` is a request field or another setting
// ("profile"); for Run it is a command with its arguments ("models install flux.2-dev").
struct Suggestion {
  enum Kind { Set, Unset, Run } kind = Set;
  std::string name;
  std::string value = {};  // for Set; empty: any valid value

  bool operator==(const Suggestion&) const = default;
};
inline Suggestion set_option(std::string name, std::string value = {}) {
  return {Suggestion::Set, std::move(name), std::move(value)};
}
inline Suggestion unset_option(std::string name) { return {Suggestion::Unset, std::move(name)}; }
inline Suggestion run_command(std::string words) { return {Suggestion::Run, std::move(words)}; }

// What to do about an error: a sentence in which {0}, {1}, … stand for the suggestions. Each front end spells the suggestions in
// its own way ("--profile exact", "\"profile\": \"exact\""), so code below the front ends never names a command-line flag.
//   Hint("try {0}, or check the model file", {set_option("profile", "exact")})
struct Hint {
  std::string text;
  std::vector<Suggestion> suggestions = {};

  Hint() = default;
  Hint(const char* sentence) : text(sentence) {}
  Hint(std::string sentence, std::vector<Suggestion> what = {}) : text(std::move(sentence)), suggestions(std::move(what)) {}

  bool empty() const { return text.empty(); }
  // The sentence, with each suggestion spelled by `spell`.
  std::string spelled(const std::function<std::string(const Suggestion&)>& spell) const;
  std::string plain() const;  // with plain field names: "try profile=exact"
};

// The one exception type: a code for programs, a sentence for people, and optionally what to do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, Hint hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const { return code_; }
  const Hint& hint() const { return hint_; }

 private:
  ErrorCode code_;
  Hint hint_;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// check(cond, "width {} is not a multiple of 16", width) throws InvalidArgument unless cond holds. Use it for mistakes of the
// caller. The message is formatted only on failure.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::InvalidArgument, format, std::forward<Args>(args)...);
}

// require(cond, "…") throws an Internal error unless cond holds. Use it for what must be true whatever the caller asked for: a
// failure is a bug of ours.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::Internal, format, std::forward<Args>(args)...);
}

// Runs f. If it throws an Error, the error is rethrown with `where: ` in front of its message.
template <class F>
auto in_context(const std::string& where, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.code(), where + ": " + e.what(), e.hint());
  }
}

}  // namespace flux2
