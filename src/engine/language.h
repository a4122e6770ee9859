#pragma once

#include <memory>

#include "engine/engine.h"
#include "image/image.h"
#include "model/language_model.h"
#include "model/vision_tower.h"

namespace flux2 {

// A model's text encoder as what it was made to be: a language model that writes text. On a CPU its weights are those of the
// mapped files that the text encoder reads too.
struct LoadedLanguage {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<const BpeTokenizer> tokenizer;
  std::shared_ptr<const LanguageModel> model;
  std::shared_ptr<const VisionTower> vision;  // null unless it was asked for
};

// Throws Incompatible, in one sentence, if the file holds only what reading prompts needs. With `sees`, it also loads what looks
// at images; Incompatible if the file has no such part.
LoadedLanguage load_language(const Engine& engine, const ModelFiles& files, bool sees = false);

// Of a conversation: instructions, images, prompt and answer. A token's keys and values take 150 kB and more.
constexpr int64_t kUsualConversation = 4096, kLongestConversation = 16384;

// The memory that it takes, from headers alone: its weights, and the keys and values of a conversation.
int64_t language_bytes(const Engine& engine, const ModelFiles& files, bool sees = false, int64_t tokens = kUsualConversation);

// Throws InvalidArgument if a conversation is longer than kLongestConversation.
void check_conversation(int64_t tokens);

// Keeps the output matrix in 8 bits beside what is there, on a CPU whose other matrices are quantised: every token reads all of
// it.
void quantise_head(LanguageModel& model, const Engine& engine, Quant others, Stream& stream);

// What the vision tower makes of an image, as rows of the language model, and how they are arranged.
struct SeenImage {
  Tensor rows;  // [1, lines · columns, hidden]
  int lines = 0, columns = 0;
};
SeenImage look_at(const LoadedLanguage& language, const Image& image, DType activations, const BeforeBlock& before_layer = {});

}  // namespace flux2
