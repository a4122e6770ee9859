#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <utility>

namespace flux2 {

// A private warning quotes what the user wrote. It is for the person who asked: a sink never stores it in a log.
enum class LogLevel { Debug, Info, Warning, PrivateWarning };

// Receives messages for the user. It is passed down, never global. A default-constructed Log discards everything.
class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;

  Log() = default;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  template <class... Args>
  void debug(fmt::format_string<Args...> f, Args&&... args) const {
    write(LogLevel::Debug, f, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> f, Args&&... args) const {
    write(LogLevel::Info, f, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> f, Args&&... args) const {
    write(LogLevel::Warning, f, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn_privately(fmt::format_string<Args...> f, Args&&... args) const {
    write(LogLevel::PrivateWarning, f, std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  void write(LogLevel level, fmt::format_string<Args...> f, Args&&... args) const {
    if (sink_) sink_(level, fmt::format(f, std::forward<Args>(args)...));
  }

  Sink sink_;
};

}  // namespace flux2
