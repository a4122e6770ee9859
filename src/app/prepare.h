#pragma once

#include <vector>

#include "app/model_choice.h"
#include "app/prompts.h"
#include "app/resolve.h"
#include "app/settings.h"
#include "pipeline/session.h"

namespace flux2 {

// The files of the model, and all requests of a run with their defaults filled in.
struct PreparedRun {
  ModelFiles model;
  std::vector<ResolvedRequest> requests;
  bool offline = false;  // nothing may use the network
};

// A request with more tokens of image and references than this gets a notice. Eight images of 1024x1024 have this many.
constexpr int64_t kLongSequence = 32768;

// The adapters of an image as `lora` names them. A record knows them by the names of their files, which are looked for beside the
// image, by name and content, and then by name where adapters are installed. Anybody may have written the record, so it cannot
// name other files. Throws NotFound if one is missing.
std::vector<std::string> adapters_of_image(const GenerationRecord& record, const std::string& image, const AppContext& context);

// Reads the settings of the image that `from` or `remix` names, and inserts them directly below the layer that names it. They
// include the model of the image, if it is installed, and its input files. Must be called before the prompts are read, because
// the image may contain a prompt. Returns `task`, or Inpaint if the image was inpainted.
Task take_settings_of_image(Settings& settings, Task task, const AppContext& context);

// Finds the model, expands presets, styles, wildcards and repeats, and resolves each prompt with its own settings.
PreparedRun prepare(Settings& settings, std::vector<PromptLine> prompts, Task task, const AppContext& context,
                    FoundModels* found = nullptr);

// Throws InvalidArgument if a prompt or negative prompt has more tokens than the model reads. Call this before the computation.
void refuse_long_prompts(const Models& models, const std::vector<ResolvedRequest>& requests, bool log_prompts);

// The adapters of a run, all of whose requests must use the same adapters.
const std::vector<AdapterChoice>& common_adapters(const PreparedRun& run);

// Writes the transformer of the model to `out`, with the adapters merged into it.
void save_merged_model(const std::filesystem::path& out, const ModelFiles& model, const std::vector<AdapterChoice>& adapters,
                       const Log& log);

}  // namespace flux2
