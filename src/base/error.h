#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace flux2 {

// What went wrong, for programs. Edges translate it: the command line to an exit status, HTTP to a response code.
enum class ErrorCode {
  Internal,         // a promise of our own was broken
  InvalidArgument,  // the caller asked for something that cannot be done
  NotFound,         // a file or model that was named does not exist
  BadFile,          // a file is damaged, truncated or not what it claims to be
  Incompatible,     // a file is fine but does not fit here (another model family, another size)
  OutOfMemory,
  Device,           // a GPU or its driver failed
  CannotWrite,
  Network,
  Refused,          // by a content filter
  Cancelled,
};

const char* name_of(ErrorCode code);

// The one exception type: a code for programs, a sentence for people, and optionally what to do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// check(cond, "rms_norm: weight {} for input {}", …): an InvalidArgument unless cond holds.
// Formatting happens only on failure.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::InvalidArgument, format, std::forward<Args>(args)...);
}

// Runs f; an Error that leaves it is rethrown with `where: ` in front of its sentence.
template <class F>
auto in_context(const std::string& where, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.code(), where + ": " + e.what(), e.hint());
  }
}

}  // namespace flux2
