#pragma once

#include <sys/types.h>

#include <string>

#include "tests/support/subprocess.h"

namespace flux2::test {

// A program that believes to sit at a terminal with 30 rows; what it prints there is collected, both streams together.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(const Start& start, unsigned short columns = 100);
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  ~PseudoTerminal();

  void type(const std::string& keys);
  // Waits until the text appears behind what earlier waits have found; false when it does not within the time, or the program
  // ends before.
  bool wait_for(const std::string& text, double seconds = 60);
  // What was printed between the last two texts waited for.
  const std::string& passed() const { return passed_; }
  const std::string& output() const { return output_; }

  int wait();  // until it ends; exit status, or 128 + signal

 private:
  bool read_some(int milliseconds);

  pid_t pid_ = -1;
  int master_ = -1;
  std::string output_, passed_;
  size_t seen_ = 0;
};

}  // namespace flux2::test
