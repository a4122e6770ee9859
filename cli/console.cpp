#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>

#include <cerrno>
#include <cstring>

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
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
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
    log_file_.open(file->values.back(), std::ios::app);
    if (!log_file_)
      fail(ErrorCode::CannotWrite, "{}: cannot write {}: {}", file->origin, file->values.back(), std::strerror(errno));
  }
}

std::string Console::coloured(const char* code, const std::string& text) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

void Console::line(const std::string& text) {
  const std::string status = status_;
  clear_status();
  std::fputs((text + "\n").c_str(), stderr);
  if (!status.empty()) this->status(status);
}

void Console::note(const std::string& text) {
  if (log_file_.is_open()) log_file_ << text << std::endl;
  if (quiet_) return;
  if (progress_ == ProgressMode::Json) event({{"event", "note"}, {"message", text}});
  else line(text);
}

void Console::warn(const std::string& text) {
  warnings_.push_back(text);
  if (log_file_.is_open()) log_file_ << "warning: " << text << std::endl;
  if (quiet_) return;
  if (progress_ == ProgressMode::Json) event({{"event", "warning"}, {"message", text}});
  else line(coloured("33", "warning: ") + text);
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
  if (log_file_.is_open()) log_file_ << "error: " << error.what() << std::endl;
  if (progress_ == ProgressMode::Json)
    event({{"event", "error"},
           {"code", name_of(error.code())},
           {"message", error.what()},
           {"hint", command_line_words(error.hint())}});
  clear_status();
  if (progress_ == ProgressMode::Json) return;
  line(coloured("31", "flux2: ") + error.what());
  if (!error.hint().empty()) line("  hint: " + command_line_words(error.hint()));
}

void Console::event(const Json& event) {
  std::fputs((event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stderr);
}

void Console::status(const std::string& text) {
  clear_status();
  status_ = text;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void Console::clear_status() {
  if (status_.empty()) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  status_.clear();
}

void Console::result(const std::string& line) {
  const std::string whole = line.ends_with('\n') ? line : line + "\n";
  result_bytes(std::as_bytes(std::span(whole)));
}

void Console::result_bytes(std::span<const std::byte> bytes) {
  clear_status();  // both streams usually end in one terminal
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::fflush(stdout) != 0)
    fail(ErrorCode::CannotWrite, "cannot write to standard output: {}", std::strerror(errno));
}

Log Console::log() {
  return Log([this](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) warn(text);
    else if (verbosity_ >= (level == LogLevel::Info ? 1 : 2)) note(text);
    else if (log_file_.is_open() && level == LogLevel::Info) log_file_ << text << std::endl;
  });
}

std::string pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace flux2
