#pragma once

#include <string_view>

namespace flux2 {

// What a language model is told before it sees a prompt or an image. The texts are the files in rewrite/instructions/, compiled
// in.
std::string_view prompt_instructions();
std::string_view edit_instructions();
std::string_view caption_instructions();

// The questions of the safety checks, whose answer is yes or no. {prompt} stands for the prompt.
std::string_view safety_instructions();
std::string_view safety_prompt_question();
std::string_view safety_image_task();  // before the image
std::string_view safety_image_question();

}  // namespace flux2
