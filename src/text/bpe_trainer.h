#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// A byte-level vocabulary learnt from texts. Strings use byte symbols ("Ġcat").
struct LearntBpe {
  std::vector<std::string> vocabulary;  // by id: the 256 byte symbols by code point, then one token for each merge
  std::vector<std::pair<std::string, std::string>> merges;
};

// Byte-pair encoding: the most frequent pair of neighbouring tokens becomes a token, until there are `entries` of them or no pair
// is left. Texts are normalised (NFC) and cut as Qwen's tokenizer does. Of pairs that are equally frequent, the one with the
// lower ids is first. The merges are those of the BpeTrainer of Hugging Face's tokenizers. Throws InvalidArgument for fewer than
// 257 entries.
LearntBpe learn_bpe(const std::vector<std::string>& texts, int64_t entries);

// Every word of the texts once, in lower case, in alphabetical order: what a model that is trained on them has seen. A word is
// what lies between blanks, without punctuation at its ends.
std::vector<std::string> words_in(const std::vector<std::string>& texts);

// The words of one text, in lower case, as above.
std::vector<std::string> words_of_text(const std::string& text);

}  // namespace flux2
