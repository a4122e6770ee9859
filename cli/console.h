#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/settings.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/output.h"

namespace flux2 {

enum class ProgressMode { Bar, Plain, Json, Off };

// Output for the user. Messages go to stderr, so that stdout contains only results. One line may be temporary (the progress bar):
// a message replaces it, and it is redrawn below.
class Console {
 public:
  Console() = default;
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() { clear_status(); }

  void configure(const Settings& settings, const GetEnv& environment);

  bool quiet() const { return quiet_; }
  int verbosity() const { return verbosity_; }
  bool json() const { return json_; }  // the result is one JSON object
  ProgressMode progress() const { return progress_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  void note(const std::string& text);            // not when quiet
  void warn(const std::string& text);            // kept in warnings() too
  void warn_privately(const std::string& text);  // not in the log file
  void error(const Error& error);                // "flux2: …" and "  hint: …"
  void event(const Json& event);                 // a line of progress in JSON
  void status(const std::string& text);          // the temporary line
  void clear_status();
  void ask(const std::string& question);  // on stderr; the answer follows on the same line

  // Results, on stdout. Texts are printed without control sequences. The path of a file is printed as it is if another program
  // reads it.
  void result(const std::string& line);
  void result_path(const std::string& path);
  void result_bytes(std::span<const std::byte> bytes);

  // Warnings always, notices with -v, everything with -vv. The console must outlive it.
  Log log();

 private:
  // A line on stderr: a word in a colour, then the text.
  void line(const std::string& text, const char* colour = "", const std::string& word = "");

  bool quiet_ = false, json_ = false, colour_ = false;
  int verbosity_ = 0;
  ProgressMode progress_ = ProgressMode::Plain;
  std::string status_;
  std::vector<std::string> warnings_;
  LogFile log_file_;
};

// The exit statuses of the program: the one table that exit_code() and `flux2 help exit-codes` read.
struct ExitStatus {
  int status = 0;
  std::string label;              // "4", "128+N"
  std::vector<ErrorCode> errors;  // that end with it
  std::string meaning;
};
const std::vector<ExitStatus>& exit_statuses();
int exit_code(ErrorCode code);

constexpr int kExitDiffers = 10;  // verify and selftest: results differ by more than the tolerance

// A hint with its suggestions as options and commands: "try --profile exact", "run `flux2 models install flux.2-dev`".
std::string command_line_words(const Hint& hint);

std::string pretty(const Json& json);  // indented; invalid UTF-8 is replaced

}  // namespace flux2
