#include "app/model_knowledge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "text/bpe_trainer.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestList = 1 << 20;  // bytes; a longer file is not the word list of a small model
constexpr size_t kNamedWords = 3;            // of a prompt

bool is_short_file(const fs::path& path) {
  std::error_code unreadable;
  return is_file(path) && fs::file_size(path, unreadable) <= kLargestList && !unreadable;
}

}  // namespace

ModelKnowledge knowledge_of(const ModelFiles& model) {
  ModelKnowledge known;
  const fs::path list = (is_folder(model.tokenizer) ? model.tokenizer : model.tokenizer.parent_path()) / "words.txt";
  if (!model.tokenizer.empty() && is_short_file(list)) {
    std::ifstream file(list);
    for (std::string line; std::getline(file, line);)
      if (const std::string_view word = trimmed(line); !word.empty() && is_utf8(word)) known.words.emplace_back(word);
    std::sort(known.words.begin(), known.words.end());
  }
  const fs::path index = model.transformer.parent_path() / "model_index.json";
  if (!is_short_file(index)) return known;
  const Json json = Json::parse(read_text_file(index), nullptr, false);
  if (!json.is_object() || !json.contains("flux2") || !json["flux2"].is_object()) return known;
  const auto sizes = json["flux2"].find("sizes");
  if (sizes == json["flux2"].end() || !sizes->is_array()) return known;
  for (const Json& size : *sizes)
    if (size.is_array() && size.size() == 2 && size[0].is_number_integer() && size[1].is_number_integer())
      known.sizes.emplace_back(size[0].get<int>(), size[1].get<int>());
  return known;
}

std::string unknown_words_notice(const ModelKnowledge& knowledge, const std::string& model, const std::string& prompt) {
  if (knowledge.words.empty()) return "";
  std::vector<std::string> unknown;
  for (const std::string& word : words_of_text(prompt)) {
    const bool known = std::binary_search(knowledge.words.begin(), knowledge.words.end(), word);
    if (!known && std::find(unknown.begin(), unknown.end(), word) == unknown.end()) unknown.push_back(word);
  }
  if (unknown.empty()) return "";
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(unknown.size(), kNamedWords); ++i)
    parts.push_back(fmt::format("\"{}\" (nearest: {})", printable(unknown[i]),
                                fmt::join(nearest_words(unknown[i], knowledge.words, 3), ", ")));
  const std::string more = unknown.size() > kNamedWords ? fmt::format(" and {} more", unknown.size() - kNamedWords) : "";
  return fmt::format("{} was not trained on the word{} {}{}", model, unknown.size() == 1 ? "" : "s", fmt::join(parts, ", "),
                     more);
}

std::string unknown_size_notice(const ModelKnowledge& knowledge, const std::string& model, int width, int height) {
  if (knowledge.sizes.empty()) return "";
  if (std::find(knowledge.sizes.begin(), knowledge.sizes.end(), std::pair(width, height)) != knowledge.sizes.end()) return "";
  std::vector<std::string> names;
  for (const auto& [w, h] : knowledge.sizes) names.push_back(fmt::format("{}x{}", w, h));
  return fmt::format("{} was not trained on images of {}x{}; it knows {}", model, width, height, fmt::join(names, ", "));
}

void note_unknown(const ModelFiles& model, const std::string& prompt, int width, int height, const Log& log) {
  const ModelKnowledge knowledge = knowledge_of(model);
  if (const std::string words = unknown_words_notice(knowledge, model.id, prompt); !words.empty())
    log.warn_privately("{}", words);
  if (const std::string size = unknown_size_notice(knowledge, model.id, width, height); !size.empty()) log.warn("{}", size);
}

}  // namespace flux2
