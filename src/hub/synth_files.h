#pragma once

#include <filesystem>

#include "base/json.h"
#include "hub/synth_model.h"
#include "text/bpe_trainer.h"

namespace flux2 {

void write_synth_json(const std::filesystem::path& path, const Json& json);

// The model_index.json of our own layout: everything that cannot be derived from the tensors.
void write_own_index(const std::filesystem::path& folder, const SynthModel& model);

// model_index.json, the scheduler's and each component's configuration as diffusers reads them.
void write_diffusers_configs(const std::filesystem::path& folder, const SynthModel& model);

void write_text_encoder_config(const std::filesystem::path& folder, const SynthModel& model);

// tokenizer.json and tokenizer_config.json with a vocabulary that was learnt from texts and the tokens of the prompt template
// behind it. Returns the number of ids, those of the template included.
int64_t write_learnt_tokenizer(const std::filesystem::path& folder, const LearntBpe& learnt);
constexpr int64_t kTemplateTokenCount = 5;

// The same with 256 byte symbols and a few merges. Throws InvalidArgument when they do not fit into `vocab` ids.
void write_small_tokenizer(const std::filesystem::path& folder, int64_t vocab);

}  // namespace flux2
