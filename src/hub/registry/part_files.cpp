#include "hub/registry/part_files.h"

#include <algorithm>
#include <set>

#include "weights/weight_files.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

const std::set<std::string>& tokenizer_files() {
  static const std::set<std::string> names = {"tokenizer.json",      "tokenizer_config.json", "vocab.json",
                                              "merges.txt",          "added_tokens.json",     "special_tokens_map.json",
                                              "chat_template.jinja", "chat_template.json",    "generation_config.json"};
  return names;
}

bool is_weights(const fs::path& path) { return path.extension() == ".safetensors" || path.extension() == ".gguf"; }

bool belongs_to(const fs::path& path, ModelType type) {
  const std::string name = path.filename().string();
  if (type == ModelType::Tokenizer) return tokenizer_files().contains(name);
  const bool sees_images = type == ModelType::Classifier || type == ModelType::ImageEncoder;
  if (sees_images && name == "preprocessor_config.json") return true;
  return is_weights(path) || name == "config.json" || name.ends_with(".safetensors.index.json");
}

// All files of the sharded set that this file belongs to, or the file alone.
std::vector<fs::path> series_of(const fs::path& file) {
  const auto series = series_name(file);
  if (!series || series->count < 1) return {file};
  std::vector<fs::path> parts;
  for (int i = 1; i <= std::min(series->count, 1000); ++i) parts.push_back(file.parent_path() / series->name_of(i));
  return parts;
}

}  // namespace

bool is_model_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  for (const char* known : {".safetensors", ".gguf", ".json", ".txt", ".jinja", ".md"})
    if (extension == known) return true;
  const std::string name = path.filename().string();
  return name == "LICENSE" || name.starts_with("LICENSE.");
}

std::vector<RecordedFile> part_files(const fs::path& path, ModelType type) {
  std::error_code unreadable;
  std::vector<fs::path> paths;
  if (fs::is_directory(path, unreadable)) {
    for (fs::directory_iterator entry(path, unreadable), end; !unreadable && entry != end; entry.increment(unreadable))
      if (belongs_to(entry->path(), type)) paths.push_back(entry->path());
    std::sort(paths.begin(), paths.end());
  } else {
    paths = series_of(path);
  }
  if (type == ModelType::Main) {
    const fs::path folder = fs::is_directory(path, unreadable) ? path : path.parent_path();
    const fs::path root = folder.filename() == "transformer" ? folder.parent_path() : folder;
    if (fs::is_regular_file(root / "model_index.json", unreadable)) paths.push_back(root / "model_index.json");
  }
  std::vector<RecordedFile> files;
  for (const fs::path& file : paths) {
    std::error_code missing;
    const auto bytes = fs::file_size(file, missing);
    files.push_back({file, missing ? 0 : bytes, ""});
  }
  return files;
}

}  // namespace flux2
