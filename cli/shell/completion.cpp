#include "cli/shell/completion.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/program_fields.h"
#include "cli/shell/settings.h"
#include "hub/variants.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, std::vector<std::string>>& known_values() {
  static const std::map<std::string, std::vector<std::string>> values = [] {
    std::map<std::string, std::vector<std::string>> all = {{"autorun", {"on", "off"}}};
    for (const auto* table : {&request_fields(), &program_fields()})
      for (const Field& f : *table) {
        if (f.type == FieldType::Flag) all[f.name] = {"on", "off"};
        else if (const auto& words = f.choices.empty() ? f.suggestions : f.choices; !words.empty()) all[f.name] = words;
      }
    for (const Variant& variant : variants()) all["model"].push_back(variant.id);
    return all;
  }();
  return values;
}

std::vector<std::string> files_like(const std::string& typed) {
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == typed.npos ? "" : typed.substr(0, slash + 1), name = typed.substr(folder.size());
  std::vector<std::string> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, failed), end; !failed && it != end && found.size() < 500;
       it.increment(failed)) {
    const std::string entry = it->path().filename().string();
    if (!entry.starts_with(name) || (name.empty() && entry.starts_with('.'))) continue;
    std::error_code ignored;
    found.push_back(folder + entry + (it->is_directory(ignored) ? "/" : ""));
  }
  return found;
}

std::vector<std::string> beginning_with(const std::vector<std::string>& all, const std::string& typed) {
  std::vector<std::string> found;
  for (const std::string& text : all)
    if (text.starts_with(typed)) found.push_back(text);
  return found;
}

bool takes_path(std::string_view command) {
  for (const char* name : {"load", "save", "write", "source"})
    if (command == name) return true;
  return false;
}

bool is_path_key(std::string_view key) {
  for (const char* name : {"inputs", "input_images", "output", "preview_file", "wildcards", "vae", "dit", "tokenizer"})
    if (key == name) return true;
  return false;
}

}  // namespace

Completion complete_shell_line(std::string_view line, const std::vector<std::string>& commands, int pictures) {
  const size_t blank = line.rfind(' ');
  const size_t word_start = blank == line.npos ? 0 : blank + 1;
  const std::string_view word = line.substr(word_start);
  const bool first = line.find_first_not_of(' ') >= word_start;
  std::string_view command = line.substr(0, line.find(' '));
  if (command.starts_with('!')) command.remove_prefix(1);

  Completion found{word_start, {}};
  const size_t equals = word.find('=');
  const size_t comma = word.rfind(',');
  const size_t part = equals == word.npos ? 0 : comma != word.npos && comma > equals ? comma + 1 : equals + 1;
  const std::string typed(word.substr(part));
  if (typed.starts_with('$')) {
    found.start += part;
    for (int i = 1; i <= pictures; ++i) found.candidates.push_back("$" + std::to_string(i));
    found.candidates = beginning_with(found.candidates, typed);
  } else if (equals != word.npos) {
    const std::string key(word.substr(0, equals));
    found.start += part;
    if (const auto known = known_values().find(key); known != known_values().end())
      found.candidates = beginning_with(known->second, typed);
    if (is_path_key(key)) found.candidates = files_like(typed);
  } else if (!first && takes_path(command)) {
    found.candidates = files_like(typed);
  } else if (!first && command == "model") {
    found.candidates = beginning_with(known_values().at("model"), typed);
  } else if (first || line.find('=') != line.npos || command == "set" || command == "reset") {
    for (const std::string& key : ShellSettings::keys()) found.candidates.push_back(command == "reset" ? key : key + "=");
    if (first) {
      const std::string mark = typed.starts_with('!') ? "!" : "";
      for (const std::string& name : commands) found.candidates.push_back(mark + name);
    }
    found.candidates = beginning_with(found.candidates, typed);
  }
  std::sort(found.candidates.begin(), found.candidates.end());
  return found;
}

}  // namespace flux2
