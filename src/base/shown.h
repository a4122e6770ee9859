#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// A name from a file as a message shows it: control characters replaced, long names cut.
std::string shown(std::string_view name);

}  // namespace flux2
