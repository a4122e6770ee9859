#pragma once

#include <cstdint>
#include <filesystem>

#include "app/context.h"

namespace flux2 {

struct LearnTokenizer {
  std::filesystem::path dataset;  // its captions are read, or those of its scenes are made
  std::filesystem::path folder;   // for tokenizer.json, tokenizer_config.json and words.txt
  int64_t entries = 1024;         // ids, those of the prompt template included
  int64_t captions = 20000;       // of scenes
};
struct LearntTokenizer {
  int64_t captions = 0, entries = 0, words = 0;
};

// Makes a tokenizer for a text encoder that is trained from nothing, from the captions of a dataset. words.txt lists the words
// that they contain: a model beside it says so when a prompt has others (app/unknown_words.h).
LearntTokenizer learn_tokenizer(const LearnTokenizer& what, const AppContext& context);

}  // namespace flux2
