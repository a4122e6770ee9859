#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// The prompt in what a language model answered: without white space around it, a leading <think>…</think> block, a code fence
// or one pair of quotes around the whole answer. Of a JSON object {"enhanced_prompt": …} its text. Throws BadFile if nothing is
// left, or if it is not text.
std::string prompt_in_answer(std::string_view answer);

// The texts in double quotes, straight or curly, in their order. A quote that is not closed quotes nothing.
std::vector<std::string> quoted_texts(std::string_view prompt);

// The quoted texts of a prompt that do not appear in another one, letter by letter.
std::vector<std::string> lost_quotes(std::string_view prompt, std::string_view rewritten);

// A text that was cut at a limit of its length, up to its last full sentence, if one ends in the last 200 characters. Otherwise
// the text as it is.
std::string without_unfinished_sentence(std::string_view text);

// Line breaks, with the white space around them, become one space.
std::string in_one_line(std::string_view text);

}  // namespace flux2
