#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace flux2 {

// Checkpoints of training runs that can be used in requests under the name "run:NAME@STEP". They are links to the files that a
// run has written, so they stay when the run goes on or removes old files.
std::string tried_name(const std::string& run, int64_t step);
std::filesystem::path tried_file(const std::filesystem::path& data_folder, const std::string& run, int64_t step);

bool is_tried_name(const std::string& text);  // whether it begins as such a name
// "run:cats@40", also with ":0.8" or ":0.8:LAYERS" behind it → the file and what follows the name. Throws NotFound.
struct TriedAdapter {
  std::filesystem::path file;
  std::string rest;
};
TriedAdapter tried_adapter(const std::string& text, const std::filesystem::path& data_folder);

}  // namespace flux2
