#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace flux2 {

// Calls `take` with every line of a file that ends in a line break, without it. What follows the last break is a record that a
// killed process did not finish; it is left out, and so are lines of more than 16 MiB. The file may be larger than memory.
void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view line)>& take);

}  // namespace flux2
