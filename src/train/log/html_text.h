#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// A text for HTML, inside elements and inside quoted attributes. Control characters and marks that change the direction of text
// become visible.
std::string html_text(std::string_view text);

// "0.0123", "1.5e-05": four digits.
std::string short_number(double value);

}  // namespace flux2
