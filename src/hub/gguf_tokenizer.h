#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "text/prompt.h"
#include "weights/gguf_writer.h"

namespace flux2 {

// Language models in GGUF files carry their tokenizer as key/values (tokenizer.ggml.*). Mistral's single files carry a whole
// tekken.json in a tensor named tekken_model: its bytes, or in GGUF files one half-precision number for each byte.

bool holds_inner_tokenizer(const std::filesystem::path& file);  // of our kind; false for what is no weights file

// The tekken.json inside a weights file; nothing if there is none.
std::optional<std::string> inner_tekken(const std::filesystem::path& file);

// Throws BadFile if its parts do not fit together and Incompatible for another kind of tokenizer. The padding token is
// <|endoftext|> if it exists, even if the file names another one, because FLUX.2 was trained with it.
BpeFiles read_gguf_tokenizer(const std::filesystem::path& file);

// The metadata for a file with `vocabulary` rows of embeddings; rows without a token get a token that no text contains.
std::vector<GgufPair> gguf_tokenizer_pairs(const BpeFiles& files, int64_t vocabulary);

// The folder or file of the tokenizer next to a text encoder's weights; empty if there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& text_encoder);

// From a folder, a tokenizer.json, a tekken.json, or the weights file that has one inside. `system_message` is that of the
// model's defaults.
BpeFiles read_tokenizer(const std::filesystem::path& path);
BpeTokenizer load_tokenizer(const std::filesystem::path& path, const std::string& system_message = {});

// Whose vocabulary a tokenizer has, from the markers at the beginning of its files: Qwen3's or Mistral's; nothing if that is not
// clear. Reads little.
std::optional<PromptFormat> likely_format(const std::filesystem::path& path);

}  // namespace flux2
