#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

// Rows of text in columns as wide as their widest cell; the first row is the heading. Control characters in names from files are
// not printed.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

std::string files_text(size_t count);  // "1 file", "3 files"

}  // namespace flux2
