#pragma once

#include <filesystem>

#include "hub/synth_model.h"

namespace flux2 {

// A small vocabulary in the form of Mistral's: tekken.json, the tokenizer.json of the same tokens, and the files that the
// processor of transformers reads beside it. Its 256 words are learnt from a short text. Throws InvalidArgument when they do not
// fit into the model's vocabulary.
void write_small_tekken(const std::filesystem::path& folder, const SynthModel& model);

}  // namespace flux2
