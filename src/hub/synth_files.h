#pragma once

#include <filesystem>

#include "base/json.h"
#include "hub/synth_model.h"

namespace flux2 {

void write_synth_json(const std::filesystem::path& path, const Json& json);

// The model_index.json of our own layout: everything that cannot be derived from the tensors.
void write_own_index(const std::filesystem::path& folder, const SynthModel& model);

// model_index.json, the scheduler's and each component's configuration as diffusers reads them.
void write_diffusers_configs(const std::filesystem::path& folder, const SynthModel& model);

void write_text_encoder_config(const std::filesystem::path& folder, const SynthModel& model);

// tokenizer.json and tokenizer_config.json: 256 byte symbols, a few merges and the tokens of the prompt template.
// Throws InvalidArgument when they do not fit into `vocab` ids.
void write_small_tokenizer(const std::filesystem::path& folder, int64_t vocab);

}  // namespace flux2
