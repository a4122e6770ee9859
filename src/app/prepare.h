#pragma once

#include <vector>

#include "app/model_choice.h"
#include "app/prompts.h"
#include "app/resolve.h"
#include "app/settings.h"
#include "pipeline/session.h"

namespace flux2 {

// A model whose files were found, and every request of a run with its defaults filled in.
struct PreparedRun {
  ModelFiles model;
  std::vector<ResolvedRequest> requests;
};

// Tokens of image and references above which a request gets a notice: eight images of 1024x1024.
constexpr int64_t kLongSequence = 32768;

// Inserts the settings of the image named by `from` or `remix` directly below the layer that names it, including its model, if it
// is installed, and the files it was made from. Must be called before the prompts are read, since the image may contain one.
// Returns `task`, or Inpaint if the image was inpainted.
Task take_settings_of_image(Settings& settings, Task task, const AppContext& context);

// Finds the model, expands presets, styles, wildcards and repeats, and resolves each prompt with its own settings.
PreparedRun prepare(Settings& settings, std::vector<PromptLine> prompts, Task task, const AppContext& context,
                    FoundModels* found = nullptr);

// To be called before the computation: throws InvalidArgument if a prompt or negative prompt is longer than the model reads.
void refuse_long_prompts(const Models& models, const std::vector<ResolvedRequest>& requests);

// The adapters of the requests of a run, which must all use the same.
const std::vector<AdapterChoice>& common_adapters(const PreparedRun& run);

// Writes the model's transformer with the adapters merged in.
void save_merged_model(const std::filesystem::path& out, const ModelFiles& model, const std::vector<AdapterChoice>& adapters,
                       const Log& log);

}  // namespace flux2
