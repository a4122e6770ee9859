#pragma once

#include <string>

namespace flux2 {

// "max_train_steps must be at least 1" → "--max_train_steps must be at least 1". Messages about options of training begin with
// the name of one; others are left as they are.
std::string with_option_names(const std::string& message);

}  // namespace flux2
