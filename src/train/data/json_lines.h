#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// One line of a file that lists images: {"image_path": …, "caption": …, "control_path_0": …, "image_prompt_path_0": …}.
struct JsonLine {
  size_t number = 0;  // counted from 1
  std::filesystem::path image;
  std::optional<std::string> caption;
  std::vector<std::filesystem::path> references;     // by the number in their keys; a bare control_path is number 0
  std::vector<std::filesystem::path> image_prompts;  // the same with image_prompt_path
};

// Relative paths mean the working directory; what is not there is looked for beside the file. Empty lines are skipped. Throws
// BadFile, naming the line.
std::vector<JsonLine> read_json_lines(const std::filesystem::path& file);

}  // namespace flux2
