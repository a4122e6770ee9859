#pragma once

#include <string>
#include <string_view>

#include "cli/options.h"

namespace flux2 {

constexpr size_t kHelpWidth = 100;  // columns

size_t columns(std::string_view utf8);

// Words in lines of at most kHelpWidth columns. Lines after the first begin at `indent`, the first one after `used` columns.
std::string wrapped(std::string_view text, size_t indent, size_t used);

// The same for a command of a shell: broken lines end in a backslash, and quoted texts stay whole, so that it can be copied.
std::string wrapped_command(std::string_view text, size_t indent, size_t used);

// `left`, then `right` from column `indent` on; on a line of its own when `left` is too long.
std::string two_columns(const std::string& left, std::string_view right, size_t indent);

// "-o, --output PATH": without leading blanks.
std::string option_usage(const OptionSpec& option);

}  // namespace flux2
