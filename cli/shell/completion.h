#pragma once

#include <string_view>

#include "cli/shell/line_editor.h"

namespace flux2 {

// What can follow in the shell: commands and keys at the beginning, keys after key=value pairs, $1 … $N for images, files
// where a path is expected, and the known values of some keys.
Completion complete_shell_line(std::string_view before_cursor, const std::vector<std::string>& commands, int pictures);

}  // namespace flux2
