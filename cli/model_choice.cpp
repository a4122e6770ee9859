#include "cli/model_choice.h"

#include <fmt/format.h>

#include "cli/folders.h"
#include "cli/registry_access.h"

namespace flux2 {

ModelQuery model_query(const Invocation& run) {
  const Settings& settings = run.settings;
  ModelQuery query;
  query.model = settings.text("model");
  query.transformer = settings.text("dit");
  query.vae = settings.text("vae");
  query.text_encoder = settings.text("text-encoder");
  query.tokenizer = settings.text("tokenizer");
  if (settings.flag("base")) query.base = true;
  query.folders = model_folders(run.environment, run.project, run.user);
  query.registered = registered_parts(run);
  query.bundled = bundled_model(run.environment);
  query.environment = run.environment;
  return query;
}

ModelFiles choose_model(Invocation& run, bool need_text_encoder, FoundModels* found) {
  ModelQuery query = model_query(run);
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", query.model, query.transformer.string(), query.vae.string(),
                                      query.text_encoder.string(), query.tokenizer.string(), query.base.value_or(false),
                                      need_text_encoder);
  if (found)
    if (const auto known = found->find(key); known != found->end()) return known->second;
  query.need_text_encoder = need_text_encoder;
  ModelFiles files = locate_model(query, run.console.log());
  if (files.bundled)
    run.console.note(
        "using the bundled model pico: 128x128 pictures of 12 colours, 8 shapes and about 118 things drawn as emoji.\n"
        "  For real pictures give a FLUX.2 model: flux2 generate -m flux.2-klein-4b …, or -m with its file or folder.");
  if (found) found->emplace(key, files);
  return files;
}

}  // namespace flux2
