#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// How many letters must be put in, taken out or replaced to make one of the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidates that are nearest to a word, best first. Case does not count.
std::vector<std::string> nearest_words(std::string_view word, const std::vector<std::string>& candidates, size_t count);

}  // namespace flux2
