#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"

namespace flux2 {

// Prompts with choices. {red|green|2::blue} is replaced by one of its alternatives, blue twice as often as each of the
// others; alternatives may be empty and may contain choices. __animal__ is replaced by a line of animal.txt, which may
// contain choices too (# comments and blank lines are skipped). \{, \|, \} and \_ give the character itself. Braces
// without | and prompts that are JSON objects are not changed.
class Wildcards {
 public:
  // The folders that are searched for files, in order.
  explicit Wildcards(std::vector<std::filesystem::path> folders, const TextLimits& limits = {})
      : folders_(std::move(folders)), limits_(limits) {}

  // Whether expand() would change the prompt.
  static bool used_in(std::string_view prompt);

  // The same seed gives the same choices, on every machine. Throws NotFound for a missing file and InvalidArgument for files that
  // refer to each other in a cycle.
  std::string expand(std::string_view prompt, uint64_t seed);

 private:
  struct Draw;
  void expand(std::string_view text, Draw& draw, int depth, std::string& out);
  const std::vector<std::string>& lines_of(const std::string& name);

  std::vector<std::filesystem::path> folders_;
  TextLimits limits_;
  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace flux2
