#include "cli/ask.h"

#include <cstdio>
#include <iostream>

#include "base/text.h"

namespace flux2 {

bool confirmed(Invocation& run, const std::string& question) {
  if (run.settings.flag("yes")) return true;
  run.console.clear_status();
  std::fputs((question + " [y/N] ").c_str(), stderr);
  std::fflush(stderr);
  std::string line;
  std::getline(std::cin, line);
  if (std::cin.eof()) std::fputs("\n", stderr);
  const std::string_view answer = trimmed(line);
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes";
}

}  // namespace flux2
