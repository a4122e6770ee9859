#pragma once

#include <string_view>

namespace flux2 {

// What a language model is told before it sees a prompt or an image. The texts are the files in rewrite/instructions/, compiled
// in.
std::string_view prompt_instructions();
std::string_view edit_instructions();
std::string_view caption_instructions();

}  // namespace flux2
