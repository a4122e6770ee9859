#include "hub/remote/choose_files.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

using Files = std::vector<RemoteFile>;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string folder_of(const std::string& path) { return path.find('/') == path.npos ? "" : path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
bool is_weights(const RemoteFile& f) { return f.path.ends_with(".safetensors") || f.path.ends_with(".gguf"); }

// "model-00001-of-00003.safetensors" → "model.safetensors": shards of one set share this name.
std::string set_name(const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string stem = path.substr(0, dot);
  const size_t of = stem.rfind("-of-");
  const size_t dash = of == stem.npos || of == 0 ? stem.npos : stem.rfind('-', of - 1);
  const auto digits = [](std::string_view s) { return s.size() == 5 && s.find_first_not_of("0123456789") == s.npos; };
  if (dash == stem.npos || !digits(std::string_view(stem).substr(dash + 1, of - dash - 1)) ||
      !digits(std::string_view(stem).substr(of + 4)))
    return path;
  return stem.substr(0, dash) + path.substr(dot);
}

std::map<std::string, Files> weight_sets(const Files& files) {
  std::map<std::string, Files> sets;
  for (const RemoteFile& f : files)
    if (is_weights(f)) sets[set_name(f.path)].push_back(f);
  return sets;
}

// Whether `word` stands in a file's name between letters' and digits' ends: fp8 in x-fp8.gguf, not in x-fp8mixed.gguf.
bool has_word(const std::string& path, const std::string& word, bool at_end) {
  const std::string full = lower(name_of(set_name(path))), stem = full.substr(0, full.rfind('.')), w = lower(word);
  const auto edge = [&](size_t i) { return i >= stem.size() || !std::isalnum(static_cast<unsigned char>(stem[i])); };
  for (size_t at = 0; (at = stem.find(w, at)) != stem.npos; ++at)
    if ((at == 0 || edge(at - 1)) && edge(at + w.size()) && (!at_end || at + w.size() == stem.size())) return true;
  return false;
}

std::string choices(const std::map<std::string, Files>& sets, const Source& source) {
  std::string text;
  int shown_sets = 0;
  for (const auto& [name, files] : sets) {
    if (++shown_sets > 12) return text + fmt::format(", and {} more", sets.size() - 12);
    uint64_t bytes = 0;
    for (const RemoteFile& f : files) bytes += f.size;
    text += fmt::format("{}{}::{} ({})", text.empty() ? "" : ", ", source.repository, printable(name), byte_text(bytes));
  }
  return text;
}

Files below(const Files& files, const std::string& path) {
  Files found;
  for (const RemoteFile& f : files)
    if (f.path == path || f.path.starts_with(path + "/")) found.push_back(f);
  return found;
}

Files at_paths(const Files& files, const Source& source) {
  std::map<std::string, RemoteFile> found;
  for (const std::string& path : source.paths) {
    const Files matches = below(files, path);
    if (matches.empty()) {
      Files near;
      for (const RemoteFile& f : files)
        if (lower(name_of(f.path)) == lower(name_of(path))) near.push_back(f);
      throw Error(ErrorCode::NotFound, fmt::format("{} has no file or folder {}", source.repository, printable(path)),
                  near.empty() ? "its weights: " + choices(weight_sets(files), source)
                               : fmt::format("did you mean {}::{}?", source.repository, printable(near[0].path)));
    }
    const bool is_file = matches.size() == 1 && matches[0].path == path;
    if (is_file && !is_fetched_kind(path))
      throw Error(
          ErrorCode::Incompatible,
          fmt::format("{} is not downloaded: only safetensors, GGUF, JSON and tokenizer files are allowed", printable(path)),
          "reading a pickle file can run code; look for a safetensors version. The .pth of an upscaler can be downloaded by "
          "hand and converted");
    for (const RemoteFile& f : matches)
      if (is_fetched_kind(f.path)) found[f.path] = f;
  }
  Files out;
  for (auto& [path, file] : found) out.push_back(std::move(file));
  return out;
}

// The weights whose name carries the word, one set per folder, and the small files that lie with them.
FileChoice of_variant(const Files& files, const Source& source) {
  const auto sets = weight_sets(files);
  std::map<std::string, std::vector<std::string>> exact, loose;  // folder → sets
  for (const auto& [name, shards] : sets) {
    if (has_word(name, source.variant, true)) exact[folder_of(name)].push_back(name);
    if (has_word(name, source.variant, false)) loose[folder_of(name)].push_back(name);
  }
  if (loose.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{} has no weights with {} in their name", source.repository, printable(source.variant)),
                "there are " + choices(sets, source));
  FileChoice choice;
  std::set<std::string> folders;
  std::string names;
  for (auto& [folder, found] : loose) {
    const std::vector<std::string>& best = exact.contains(folder) ? exact[folder] : found;
    if (best.size() > 1) {
      std::map<std::string, Files> several;
      for (const std::string& name : best) several[name] = sets.at(name);
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} matches several files of {}", printable(source.variant), source.repository),
                  "choose one: " + choices(several, source));
    }
    folders.insert(folder);
    names += (names.empty() ? "" : ", ") + best[0];
    for (const RemoteFile& f : sets.at(best[0])) choice.files.push_back(f);
  }
  for (const RemoteFile& f : files)
    if (!is_weights(f) && folders.contains(folder_of(f.path))) choice.files.push_back(f);
  choice.reason = fmt::format("{}, the weights with {} in their name", names, source.variant);
  return choice;
}

// A second form of weights that are there already: model.fp16.safetensors beside model.safetensors, Mistral's
// consolidated.safetensors beside shards.
bool repeats_others(const RemoteFile& file, const std::map<std::string, Files>& sets) {
  const std::string name = set_name(file.path), folder = folder_of(name), base = name_of(name);
  const auto in_folder = [&](const std::string& other) { return sets.contains(folder.empty() ? other : folder + "/" + other); };
  if (base.starts_with("consolidated") && in_folder("model.safetensors")) return true;
  const size_t dot = base.rfind('.'), word = dot == base.npos || dot == 0 ? base.npos : base.rfind('.', dot - 1);
  return word != base.npos && in_folder(base.substr(0, word) + base.substr(dot));
}

FileChoice whole(const Files& files, const Source& source) {
  const auto sets = weight_sets(files);
  if (sets.empty())
    throw Error(ErrorCode::NotFound, fmt::format("{} has no safetensors or GGUF files", source.repository),
                "only these are read; look for another version of the model");
  const bool diffusers = std::ranges::any_of(files, [](const RemoteFile& f) { return f.path == "model_index.json"; });
  FileChoice choice;
  int left_out = 0;
  for (const RemoteFile& f : files) {
    const bool single_file = diffusers && is_weights(f) && folder_of(f.path).empty();
    if (single_file || (is_weights(f) && repeats_others(f, sets))) ++left_out;
    else choice.files.push_back(f);
  }
  const auto chosen = weight_sets(choice.files);
  if (diffusers && !chosen.empty()) {
    choice.reason = "the diffusers folder, which has every part of the model";
    if (left_out > 0)
      choice.reason += fmt::format("; {} weight file{} that repeat{} it stay{} away", left_out, left_out > 1 ? "s" : "",
                                   left_out > 1 ? "" : "s", left_out > 1 ? "" : "s");
    return choice;
  }
  if (chosen.size() > 1)
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} has {} different weight files", source.repository, chosen.size()),
                "choose one, by its path or by a word of its name after a colon: " + choices(chosen, source));
  if (chosen.empty()) return {files, "all weights"};  // a model_index.json beside one single file
  choice.reason = fmt::format("{}, the only weights of the repository", chosen.begin()->first);
  return choice;
}

}  // namespace

bool is_fetched_kind(const std::string& path) {
  const std::string name = lower(name_of(path));
  for (const char* ending : {".safetensors", ".gguf", ".json", ".txt", ".jinja", ".tiktoken"})
    if (name.ends_with(ending)) return true;
  return name == "tokenizer.model" || name == "spiece.model" || name == "sentencepiece.bpe.model";
}

FileChoice choose_files(const Files& all, const Source& source) {
  Files files;
  for (const RemoteFile& f : all)
    if (is_fetched_kind(f.path)) files.push_back(f);
  FileChoice choice;
  if (!source.paths.empty()) {
    choice.files = at_paths(all, source);
    choice.reason = "the files that were named";
    if (choice.files.empty())
      throw Error(ErrorCode::NotFound, fmt::format("{} contains no safetensors, GGUF, JSON or tokenizer files", source.text()),
                  "name another folder");
  }
  if (!source.variant.empty()) choice = of_variant(source.paths.empty() ? files : choice.files, source);
  else if (source.paths.empty()) choice = whole(files, source);
  std::ranges::sort(choice.files, [](const RemoteFile& a, const RemoteFile& b) {
    return std::pair(is_weights(a), a.path) < std::pair(is_weights(b), b.path);
  });
  return choice;
}

}  // namespace flux2
