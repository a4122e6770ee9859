#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "hub/model_files.h"

namespace flux2 {

// What a small model was trained on, as its folder says. Large models know every word and say nothing.
struct ModelKnowledge {
  std::vector<std::string> words;          // of the file words.txt beside the tokenizer, sorted; empty: unknown
  std::vector<std::pair<int, int>> sizes;  // width and height: flux2.sizes in model_index.json; empty: unknown
};
ModelKnowledge knowledge_of(const ModelFiles& model);

// One sentence about the words of a prompt that the model was not trained on, with the nearest ones that it knows. Empty: none.
std::string unknown_words_notice(const ModelKnowledge& knowledge, const std::string& model, const std::string& prompt);

// One sentence about a size that the model was not trained on. Empty: it was, or nothing is known.
std::string unknown_size_notice(const ModelKnowledge& knowledge, const std::string& model, int width, int height);

// Warns about both. The words are a private warning, because they are part of the prompt.
void note_unknown(const ModelFiles& model, const std::string& prompt, int width, int height, const Log& log);

}  // namespace flux2
