#include "hub/training_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace flux2 {

namespace {

// The words of a name: "flux-2-klein-base-4b.safetensors" has flux, klein, base, b, safetensors.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)))
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty()) words.emplace_back();
  }
  return words;
}

std::optional<TrainingKind> told_by(const std::string& text, const std::string& where) {
  for (const std::string& word : words_of(text)) {
    if (word == "base") return TrainingKind{false, false, fmt::format("the word base in {}", where)};
    if (word == "kv") return TrainingKind{true, true, fmt::format("the word kv in {}", where)};
    for (const char* sign : {"distill", "turbo", "schnell"})
      if (word.starts_with(sign)) return TrainingKind{true, false, fmt::format("the word {} in {}", word, where)};
  }
  return std::nullopt;
}

std::optional<TrainingKind> told_by_index(const Json& index) {
  if (!index.is_object()) return std::nullopt;
  const auto member = index.find("_class_name");
  const std::string name = member != index.end() && member->is_string() ? member->get<std::string>() : "";
  if (name == "Flux2KleinKVPipeline") return TrainingKind{true, true, "model_index.json: Flux2KleinKVPipeline"};
  const auto flag = index.find("is_distilled");
  if (flag != index.end() && flag->is_boolean())
    return TrainingKind{flag->get<bool>(), false, fmt::format("model_index.json: is_distilled is {}", flag->get<bool>())};
  if (name == "Flux2KleinPipeline")
    return TrainingKind{false, false, "model_index.json: Flux2KleinPipeline without is_distilled"};
  return std::nullopt;
}

}  // namespace

TrainingKind training_kind(const TrainingSigns& signs) {
  if (signs.base) return {!*signs.base, false, "as asked for"};
  if (signs.model_index)
    if (const auto kind = told_by_index(*signs.model_index)) return *kind;
  for (const char* key : {kTrainingKey, "modelspec.title", "modelspec.architecture", "ss_base_model_version", "general.name"})
    if (const auto text = signs.metadata.find(key); text != signs.metadata.end())
      if (const auto kind = told_by(text->second, fmt::format("the file's metadata ({})", key))) return *kind;
  // The file and the folder of the model, which contains the folder of the component.
  int names = 0;
  bool named_klein = false;
  for (std::filesystem::path at = signs.path; names < 2 && !at.filename().empty(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    if (name == "transformer") continue;
    ++names;
    if (const auto kind = told_by(name, fmt::format("the name {}", name))) return *kind;
    const auto words = words_of(name);
    named_klein = named_klein || std::find(words.begin(), words.end(), "klein") != words.end();
  }
  return {true, false, "nothing says otherwise; it can be run as a base model instead", true, named_klein};
}

}  // namespace flux2
