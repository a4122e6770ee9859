#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/bpe_files.h"

namespace flux2 {

// Reads a tekken.json, the file that Mistral publishes its tokenizers in: tokens as bytes in the order of their ranks, and
// special tokens, which take the first ids. The text may also come out of a weights file (a tensor named tekken_model). Throws
// BadFile, or Incompatible if it splits text by a pattern that this program does not implement.
BpeFiles parse_tekken(std::string_view text);

// The name of a special token in vocabularies whose files do not list them: "<s>" for 1, "<SPECIAL_20>" for 20.
std::string tekken_special_token(int64_t id);

}  // namespace flux2
