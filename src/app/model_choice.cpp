#include "app/model_choice.h"

#include "app/registry_access.h"
#include "record/field_values.h"
#include "record/request_fields.h"

namespace flux2 {

ModelQuery model_query(const RequestSpec& spec, const AppContext& context) {
  ModelQuery query;
  query.model = spec.model.value_or("");
  query.names_only = spec.names_only.contains("model");
  query.transformer = spec.dit.value_or("");
  query.vae = spec.vae.value_or("");
  query.text_encoder = spec.text_encoder.value_or("");
  query.tokenizer = spec.tokenizer.value_or("");
  if (spec.base.value_or(false)) query.base = true;
  query.folders = model_folders(context);
  query.registered = registered_parts(context);
  query.bundled = bundled_model(context.environment);
  query.environment = context.environment;
  query.need_text_encoder = !spec.embeddings && !spec.latent_path;
  return query;
}

std::string licence_of(const ModelFiles& model, const AppContext& context) {
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all())
      if (r.path == model.transformer && !r.license.empty()) return r.license;
  const auto variant = find_variant(model.id);
  return variant ? variant->licence : "";
}

ModelFiles choose_model(const RequestSpec& spec, const AppContext& context, FoundModels* found) {
  if (spec.latent_path && spec.vae && !spec.model && !spec.dit) {  // an autoencoder is enough for decoding
    ModelFiles files;
    files.vae = model_path(*spec.vae, ComponentKind::Autoencoder, context);
    return files;
  }
  std::string key = spec.embeddings || spec.latent_path ? "without a text encoder" : "";
  if (spec.names_only.contains("model")) key += "\nby name";
  for (const Field& f : request_fields())
    if (f.chooses_model)
      if (const auto value = get_value(spec, f)) key += "\n" + f.name + "=" + print_value(*value).front();
  if (found)
    if (const auto known = found->find(key); known != found->end()) return known->second;
  ModelFiles files = locate_model(model_query(spec, context), context.log);
  constexpr size_t kMostFound = 256;
  if (found && found->size() >= kMostFound) found->clear();
  if (found) found->emplace(key, files);
  return files;
}

ModelFiles choose_model_to_train(const RequestSpec& spec, const AppContext& context) {
  const ModelFiles files = choose_model(spec, context);
  if (!files.bundled || !files.distilled || spec.model || spec.dit) return files;
  const std::vector<std::filesystem::path> bundled = bundled_models(context.environment);
  RequestSpec trainable = spec;
  trainable.model = bundled.back().string();
  return choose_model(trainable, context);
}

}  // namespace flux2
