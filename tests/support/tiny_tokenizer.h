#pragma once

#include <filesystem>

#include "base/json.h"
#include "tests/support/paths.h"
#include "text/bpe_tokenizer.h"

namespace flux2 {

// A small vocabulary in the layout of Qwen3's, for tests.
inline std::filesystem::path tiny_tokenizer_folder() { return test::golden_folder() / "tiny" / "tokenizer"; }

inline Json tiny_tokenizer_json() { return read_json(tiny_tokenizer_folder() / "tokenizer.json"); }

inline BpeTokenizer tiny_tokenizer() { return BpeTokenizer::load(tiny_tokenizer_folder()); }

}  // namespace flux2
