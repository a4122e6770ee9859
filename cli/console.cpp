#include "cli/console.h"

#include <fmt/format.h>
#include <algorithm>

#include <cerrno>
#include <cstring>

#include "base/foreign_text.h"
#include "cli/shell/line_buffer.h"

namespace flux2 {

const std::vector<ExitStatus>& exit_statuses() {
  using E = ErrorCode;
  static const std::vector<ExitStatus> list = {
      {0, "0", {}, "success"},
      {1, "1", {E::Internal, E::Cancelled}, "an error of the program itself, a deadline that passed, or a failed `lora check`"},
      {2, "2", {E::InvalidArgument}, "wrong usage: an unknown option, or a value that is not valid"},
      {3, "3", {E::NotFound}, "a file or a model does not exist"},
      {4,
       "4",
       {E::BadFile, E::Incompatible},
       "a file is damaged or cannot be used here; `doctor` or `models verify` found a problem"},
      {5, "5", {E::OutOfMemory}, "not enough memory"},
      {6, "6", {E::Device}, "a GPU or its driver failed"},
      {7, "7", {E::CannotWrite}, "a file cannot be written"},
      {8, "8", {E::Network}, "a download failed"},
      {9, "9", {E::Refused}, "refused by a content filter"},
      {kExitDiffers, "10", {}, "`verify` or `selftest`: results differ by more than the tolerance"},
      {128, "128+N", {}, "stopped by signal N; 130: Ctrl-C"},
  };
  return list;
}

int exit_code(ErrorCode code) {
  for (const ExitStatus& s : exit_statuses())
    if (std::find(s.errors.begin(), s.errors.end(), code) != s.errors.end()) return s.status;
  return 1;
}

void Console::configure(const Settings& settings, const GetEnv& environment) {
  const bool terminal = is_terminal(Channel::Message);
  quiet_ = settings.flag("quiet");
  verbosity_ = quiet_ ? 0 : settings.count("verbose");
  json_ = settings.flag("json");
  const std::string colour = settings.choice("color", {"auto", "always", "never"}, "auto");
  const char* no_colour = environment("NO_COLOR");
  colour_ = colour == "always" || (colour == "auto" && terminal && !(no_colour && *no_colour));
  const std::string progress = settings.choice("progress", {"auto", "bar", "plain", "json", "off"}, "auto");
  if (progress == "auto") progress_ = quiet_ ? ProgressMode::Off : terminal ? ProgressMode::Bar : ProgressMode::Plain;
  else
    progress_ = progress == "bar"     ? ProgressMode::Bar
                : progress == "plain" ? ProgressMode::Plain
                : progress == "json"  ? ProgressMode::Json
                                      : ProgressMode::Off;
  if (const Setting* file = settings.find("log-file"); file && !log_file_.is_open()) {
    if (!log_file_.open(file->values.back()))
      fail(ErrorCode::CannotWrite, "{}: cannot write {}: {}", file->origin, file->values.back(), std::strerror(errno));
  }
}

void Console::line(const std::string& text, const char* colour, const std::string& word) {
  const std::string status = status_;
  clear_status();
  if (colour_ && !word.empty()) write_sequence(Channel::Message, fmt::format("\x1b[{}m", colour));
  write_text(Channel::Message, word);
  if (colour_ && !word.empty()) write_sequence(Channel::Message, "\x1b[0m");
  write_text(Channel::Message, visible_message(text) + "\n");
  if (!status.empty()) this->status(status);
}

void Console::note(const std::string& text) {
  log_file_.line(text);
  if (quiet_) return;
  if (progress_ == ProgressMode::Json) event({{"event", "note"}, {"message", text}});
  else line(text);
}

void Console::warn(const std::string& text) {
  log_file_.line("warning: " + text);
  warn_privately(text);
}

void Console::warn_privately(const std::string& text) {
  warnings_.push_back(text);
  if (quiet_) return;
  if (progress_ == ProgressMode::Json) event({{"event", "warning"}, {"message", text}});
  else line(text, "33", "warning: ");
}

std::string command_line_words(const Hint& hint) {
  return hint.spelled([](const Suggestion& s) {
    if (s.kind == Suggestion::Run) return "`flux2 " + s.name + "`";
    std::string flag = "--" + s.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    return s.value.empty() || s.value == "true" ? flag : flag + " " + s.value;
  });
}

void Console::error(const Error& error) {
  log_file_.line("error: " + std::string(error.what()));
  if (progress_ == ProgressMode::Json)
    event({{"event", "error"},
           {"code", name_of(error.code())},
           {"message", error.what()},
           {"hint", command_line_words(error.hint())}});
  clear_status();
  if (progress_ == ProgressMode::Json) return;
  line(error.what(), "31", "flux2: ");
  if (!error.hint().empty()) line("  hint: " + command_line_words(error.hint()));
}

void Console::event(const Json& event) {
  write_text(Channel::Message, event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Console::status(const std::string& text) {
  clear_status();
  status_ = text;
  const std::string visible = visible_text(text, LineBreaks::Escape);
  // A line that wraps cannot be cleared: the cursor goes back to the start of its last row only.
  const int columns = terminal_columns(Channel::Message);
  write_text(Channel::Message, columns > 0 ? visible_part(visible, 0, columns).text : visible);
}

void Console::clear_status() {
  if (status_.empty()) return;
  write_sequence(Channel::Message, "\r\x1b[K");
  status_.clear();
}

void Console::ask(const std::string& question) {
  clear_status();
  write_text(Channel::Message, visible_message(question));
}

void Console::result(const std::string& line) {
  clear_status();  // both streams usually end in one terminal
  write_text(Channel::Result, line.ends_with('\n') ? line : line + "\n");
}

void Console::result_path(const std::string& path) {
  if (is_terminal(Channel::Result)) return result(path);
  const std::string line = path + "\n";
  result_bytes(std::as_bytes(std::span(line)));
}

void Console::result_bytes(std::span<const std::byte> bytes) {
  clear_status();
  write_result_bytes(bytes);
}

Log Console::log() {
  return Log([this](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) warn(text);
    else if (level == LogLevel::PrivateWarning) warn_privately(text);
    else if (verbosity_ >= (level == LogLevel::Info ? 1 : 2)) note(text);
    else if (level == LogLevel::Info) log_file_.line(text);
  });
}

std::string pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace flux2
