#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace flux2 {

// Runs `work` in `count` processes at a time and returns the lines that all of them wrote. A process that throws or whose checks
// fail is a failure of the test. Files are written in `folder`.
inline std::multiset<std::string> lines_of_processes(const std::filesystem::path& folder, int count,
                                                     const std::function<void(int number, std::ostream& lines)>& work) {
  const auto file_of = [&](int number) { return folder / ("lines" + std::to_string(number)); };
  std::vector<pid_t> children;
  for (int number = 0; number < count; ++number) {
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      int status = 1;
      try {
        std::ofstream lines(file_of(number));
        work(number, lines);
        lines.flush();
        status = !lines.good() ? 3 : testing::Test::HasFailure() ? 4 : 0;
      } catch (const std::exception&) {}
      ::_exit(status);
    }
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::multiset<std::string> all;
  for (int number = 0; number < count; ++number) {
    std::ifstream lines(file_of(number));
    for (std::string line; std::getline(lines, line);) all.insert(line);
  }
  return all;
}

}  // namespace flux2
