#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace flux2::test {

struct Finished {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
  bool timed_out = false;
};

struct Start {
  std::vector<std::string> arguments;                   // the program's path first
  std::string input = {};                               // its standard input
  std::string folder = {};                              // working directory; empty: ours
  std::map<std::string, std::string> environment = {};  // on top of PATH alone, so that a test does not see the user's settings
  bool input_ends = true;                               // false: whoever reads on waits
};

// A program with its own standard streams, collected in memory.
class Subprocess {
 public:
  explicit Subprocess(const Start& start);
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  ~Subprocess();

  // Reads stderr until it holds `text`; false when it ends first.
  bool wait_for_error_text(const std::string& text);
  const Finished& so_far() const { return result_; }  // what was read
  void signal(int number);
  pid_t pid() const { return pid_; }
  // Kills the program if it takes longer; `timed_out` says so.
  Finished wait(double seconds = 3600);

 private:
  bool read_some(int milliseconds = -1);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  Finished result_;
};

inline Finished run(const Start& start, double seconds = 3600) { return Subprocess(start).wait(seconds); }

}  // namespace flux2::test
