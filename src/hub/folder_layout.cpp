#include "hub/folder_layout.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/path_exists.h"
#include "weights/weight_files.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

template <class Test>
std::vector<fs::path> entries(const fs::path& folder, const Test& test) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (test(entry->path())) found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

bool is_later_part(const fs::path& path) {
  const auto series = series_name(path);
  return series && series->part != 1;
}

// A text encoder that was downloaded by itself, in a folder of its name.
bool is_language_model_folder(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with("Qwen3") || name.starts_with("Mistral-Small-3");
}

}  // namespace

std::vector<fs::path> weight_files_in(const fs::path& folder) {
  return entries(folder, [](const fs::path& p) {
    return (p.extension() == ".safetensors" || p.extension() == ".gguf") && !is_later_part(p) && is_file(p);
  });
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  return entries(folder, [](const fs::path& p) {
    std::error_code unreadable;
    return fs::is_directory(p, unreadable) && !p.filename().string().starts_with(".");
  });
}

bool has_weight_index(const fs::path& folder) {
  return !entries(folder, [](const fs::path& p) { return p.filename().string().ends_with(".safetensors.index.json"); }).empty();
}

bool holds_weights(const fs::path& folder) { return !weight_files_in(folder).empty(); }

bool holds_tokenizer(const fs::path& folder) {
  return is_file(folder / "tokenizer.json") || is_file(folder / "tekken.json") ||
         (is_file(folder / "vocab.json") && is_file(folder / "merges.txt"));
}

std::optional<Json> model_index_of(const fs::path& folder) {
  const fs::path path = folder / "model_index.json";
  if (!is_file(path)) return std::nullopt;
  Json index = read_model_json(path);
  if (!index.is_object()) fail(ErrorCode::BadFile, "{}: expected a JSON object", path.string());
  return index;
}

std::optional<fs::path> lender_of(const fs::path& folder) {
  const auto index = model_index_of(folder);
  if (!index || !index->contains("flux2")) return std::nullopt;
  const Json& own = (*index)["flux2"];
  if (!own.is_object() || !own.contains("parts_from")) return std::nullopt;
  const fs::path name = own["parts_from"].is_string() ? own["parts_from"].get<std::string>() : "";
  // A model from a stranger must not choose files elsewhere.
  if (name.empty() || name != name.filename() || name == "." || name == "..")
    fail(ErrorCode::BadFile, "{}: parts_from must be the name of a folder beside this one",
         (folder / "model_index.json").string());
  const fs::path here = fs::absolute(folder).lexically_normal();
  return (here.has_filename() ? here : here.parent_path()).parent_path() / name;
}

std::optional<Json> model_index_near(const fs::path& component) {
  const fs::path folder = is_file(component) ? component.parent_path() : component;
  if (auto index = model_index_of(folder)) return index;
  return folder.filename() == "transformer" ? model_index_of(folder.parent_path()) : std::nullopt;
}

std::vector<fs::path> components_in(const fs::path& folder) {
  if (holds_weights(folder) && (has_weight_index(folder) || is_file(folder / "config.json"))) return {folder};
  std::vector<fs::path> found = weight_files_in(folder);
  for (const fs::path& inner : folders_in(folder))
    if (holds_weights(inner)) found.push_back(inner);
  return found;
}

namespace {

std::vector<fs::path> own_candidates(const fs::path& root, ComponentKind kind) {
  std::vector<fs::path> found;
  const auto add = [&](const std::vector<fs::path>& paths) {
    for (const fs::path& p : paths)
      if (std::find(found.begin(), found.end(), p) == found.end()) found.push_back(p);
  };
  const auto add_role_folders = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) add(components_in(root / name));
  };
  const auto index = model_index_of(root);
  switch (kind) {
    case ComponentKind::Transformer:
      if (index && index->contains("transformer")) add(components_in(root / "transformer"));
      add(weight_files_in(root));
      add_role_folders({"transformer", "diffusion_models", "unet"});
      break;
    case ComponentKind::Autoencoder:
      if (is_file(root / "ae.safetensors")) add({root / "ae.safetensors"});
      add_role_folders({"vae"});
      add(weight_files_in(root));
      break;
    case ComponentKind::TextEncoder:
      add_role_folders({"text_encoder", "text_encoders", "clip"});
      for (const fs::path& inner : folders_in(root))
        if (is_language_model_folder(inner) && holds_weights(inner)) add({inner});
      if (has_weight_index(root) && is_file(root / "config.json")) add({root});
      add(weight_files_in(root));
      break;
    case ComponentKind::Tokenizer:
      for (const char* name : {"tokenizer", "text_encoder", "."})
        if (holds_tokenizer(root / name)) add({(root / name).lexically_normal()});
      for (const fs::path& inner : folders_in(root))
        if (is_language_model_folder(inner) && holds_tokenizer(inner)) add({inner});
      break;
    case ComponentKind::Adapter:
    case ComponentKind::Upscaler:
    case ComponentKind::Classifier:
    case ComponentKind::ImageEncoder:
    case ComponentKind::ImagePrompt:
    case ComponentKind::Unknown: break;
  }
  return found;
}

}  // namespace

std::vector<fs::path> candidates_in(const fs::path& root, ComponentKind kind) {
  std::vector<fs::path> found = own_candidates(root, kind);
  if (kind == ComponentKind::Transformer) return found;
  if (const auto lender = lender_of(root))
    for (fs::path& path : own_candidates(*lender, kind)) found.push_back(std::move(path));
  return found;
}

fs::path model_root(const fs::path& transformer) {
  const fs::path folder = is_file(transformer) ? transformer.parent_path() : transformer;
  for (const char* role : {"transformer", "diffusion_models", "unet"})
    if (folder.filename() == role) return folder.parent_path();
  return folder;
}

}  // namespace flux2
