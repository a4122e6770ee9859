#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {

// The lines a person entered, the last 500 of them kept in a file.
class LineHistory {
 public:
  explicit LineHistory(std::filesystem::path file);  // empty: kept in memory alone

  const std::vector<std::string>& lines() const { return lines_; }  // oldest first
  void add(const std::string& line);                                // a repetition of the last one counts once

 private:
  std::filesystem::path file_;
  std::vector<std::string> lines_;
};

}  // namespace flux2
