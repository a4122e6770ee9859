#include "hub/registry/part_files.h"

#include <algorithm>
#include <regex>
#include <set>

namespace flux2 {

namespace fs = std::filesystem;

namespace {

const std::set<std::string>& tokenizer_files() {
  static const std::set<std::string> names = {"tokenizer.json",    "tokenizer_config.json",   "vocab.json",
                                              "merges.txt",        "added_tokens.json",       "special_tokens_map.json",
                                              "chat_template.jinja", "chat_template.json",    "generation_config.json"};
  return names;
}

bool is_weights(const fs::path& path) { return path.extension() == ".safetensors" || path.extension() == ".gguf"; }

bool belongs_to(const fs::path& path, ModelType type) {
  const std::string name = path.filename().string();
  if (type == ModelType::Tokenizer) return tokenizer_files().contains(name);
  return is_weights(path) || name == "config.json" || name.ends_with(".safetensors.index.json");
}

// The parts of a series that one of them names; the file itself otherwise.
std::vector<fs::path> series_of(const fs::path& file) {
  static const std::regex form("(.*-)([0-9]{5})(-of-)([0-9]{5})(\\.safetensors|\\.gguf)");
  std::smatch match;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, match, form)) return {file};
  std::vector<fs::path> parts;
  const int count = std::min(std::stoi(match[4].str()), 1000);
  for (int i = 1; i <= count; ++i) {
    std::string number = std::to_string(i);
    number.insert(0, 5 - number.size(), '0');
    parts.push_back(file.parent_path() / (match[1].str() + number + match[3].str() + match[4].str() + match[5].str()));
  }
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
