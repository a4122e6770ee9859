#pragma once

#include <filesystem>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "weights/gguf_writer.h"

namespace flux2 {

// Language models in GGUF files carry their tokenizer as key/values (tokenizer.ggml.*).

bool holds_gguf_tokenizer(const std::filesystem::path& file);  // of our kind; false for what is no GGUF file

// Throws BadFile if its parts do not fit together and Incompatible for another kind of tokenizer. The padding token is
// <|endoftext|> if it exists, even if the file names another one, because FLUX.2 was trained with it.
BpeFiles read_gguf_tokenizer(const std::filesystem::path& file);

// The metadata for a file with `vocabulary` rows of embeddings; rows without a token get a token that no text contains.
std::vector<GgufPair> gguf_tokenizer_pairs(const BpeFiles& files, int64_t vocabulary);

// The folder or file of the tokenizer next to a text encoder's weights; empty if there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& text_encoder);

// From a folder, a tokenizer.json or a GGUF file.
BpeTokenizer load_tokenizer(const std::filesystem::path& path);

}  // namespace flux2
