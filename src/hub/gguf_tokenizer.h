#pragma once

#include <filesystem>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "weights/gguf_writer.h"

namespace flux2 {

// Language models in GGUF files carry their tokenizer as key/values (tokenizer.ggml.*).

bool holds_gguf_tokenizer(const std::filesystem::path& file);  // of our kind; false for what is no GGUF file

// Throws BadFile when its parts do not fit one another and Incompatible for another kind of tokenizer. The token that fills up
// is <|endoftext|> where there is one, whatever the file says: FLUX.2 was trained so, and some files name another.
BpeFiles read_gguf_tokenizer(const std::filesystem::path& file);

// What a file with `vocabulary` rows of embeddings says; rows without a token get one that no text contains.
std::vector<GgufPair> gguf_tokenizer_pairs(const BpeFiles& files, int64_t vocabulary);

// The folder or file of the tokenizer that lies beside a text encoder's weights; empty when there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& text_encoder);

// From a folder, a tokenizer.json or a GGUF file.
BpeTokenizer load_tokenizer(const std::filesystem::path& path);

}  // namespace flux2
