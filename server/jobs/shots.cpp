#include "server/jobs/shots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "server/store/folded_text.h"
#include "text/unicode.h"

namespace flux2 {

namespace {

constexpr double kLeastScore = 0.4;
constexpr size_t kFewestShared = 3;  // words of a description

std::string field_of(const Shot& shot, const char* name) {
  const auto found = shot.fields.find(name);
  return found != shot.fields.end() && found->is_string() ? std::string(trimmed(found->get<std::string>())) : std::string();
}

// Runs of letters and digits, in small letters.
std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> words(1);
  const std::string small = folded(text);
  for (size_t at = 0; at < small.size();) {
    const char32_t c = next_code_point(small, at);
    const CharClass group = char_class(c);
    if (group == CharClass::Letter || group == CharClass::Number) append_utf8(words.back(), c);
    else if (!words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Whether the words stand in the text side by side.
bool says(const std::vector<std::string>& text, const std::vector<std::string>& phrase) {
  return !phrase.empty() && std::search(text.begin(), text.end(), phrase.begin(), phrase.end()) != text.end();
}

bool has_all(const std::vector<std::string>& text, const std::vector<std::string>& words) {
  const auto is_there = [&](const std::string& word) { return std::find(text.begin(), text.end(), word) != text.end(); };
  return !words.empty() && std::all_of(words.begin(), words.end(), is_there);
}

// Words of two letters or more, each once.
std::set<std::string> content_words(const std::vector<std::string>& words) {
  std::set<std::string> found;
  for (const std::string& word : words) {
    size_t second = 0;
    next_code_point(word, second);
    if (second < word.size()) found.insert(word);
  }
  return found;
}

double description_score(const std::vector<std::string>& description, const std::vector<std::string>& text) {
  const std::set<std::string> wanted = content_words(description), there = content_words(text);
  const auto shared = static_cast<size_t>(
      std::count_if(wanted.begin(), wanted.end(), [&](const std::string& word) { return there.contains(word); }));
  if (shared < kFewestShared) return 0;
  return 0.5 * std::min(1.0, static_cast<double>(shared) / static_cast<double>(wanted.size()));
}

}  // namespace

std::vector<ElementScore> match_elements(const Shot& shot, const std::string& heading, const std::vector<Element>& elements) {
  const auto character = words_in(field_of(shot, "character")), action = words_in(field_of(shot, "action")),
             dialogue = words_in(field_of(shot, "dialogue")), scene = words_in(heading);
  std::vector<std::string> spoken_and_done = action;
  spoken_and_done.insert(spoken_and_done.end(), dialogue.begin(), dialogue.end());
  std::vector<ElementScore> matches;
  for (const Element& element : elements) {
    ElementScore best{.element = &element, .score = 0, .source = {}};
    const auto consider = [&](bool found, double score, const char* source) {
      if (found && score > best.score) best.score = score, best.source = source;
    };
    const auto name = words_in(element.name), trigger = words_in(element.trigger);
    consider(!name.empty() && character == name, 1.0, "character");
    consider(says(character, trigger) || says(action, trigger), 0.95, "trigger");
    consider(element.type == "location" && says(scene, name), 0.85, "scene");
    consider(has_all(character, name), 0.8, "character");
    consider(says(action, name), 0.75, "action");
    consider(says(dialogue, name), 0.7, "dialogue");
    consider(true, description_score(words_in(element.description), spoken_and_done), "description");
    best.score = std::round(best.score * 100) / 100;
    if (best.score >= kLeastScore) matches.push_back(best);
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const ElementScore& a, const ElementScore& b) { return a.score > b.score; });
  return matches;
}

std::string shot_prompt(const Shot& shot, const std::string& scene_name, const std::vector<Element>& places,
                        const std::string& before, const ShotParts& parts) {
  std::vector<std::string> texts;
  const auto add = [&](bool wanted, const char* lead, const std::string& text) {
    if (wanted && !text.empty()) texts.push_back(lead + text);
  };
  add(parts.scene, "", std::string(trimmed(scene_name)));
  add(parts.shot_type, "Shot type: ", field_of(shot, "shot_type"));
  add(parts.character, "Character: ", field_of(shot, "character"));
  add(parts.dialogue, "Dialogue: ", field_of(shot, "dialogue"));
  const std::string own = field_of(shot, "prompt");
  add(true, "", own.empty() ? field_of(shot, "action") : own);
  if (parts.setting) {
    const auto text = words_in(fmt::format("{}", fmt::join(texts, ". ")));
    for (const Element& place : places)
      if (!says(text, words_in(place.name)) && !says(text, words_in(place.trigger))) texts.push_back("Setting: " + place.trigger);
  }
  add(parts.context, "Before this: ", before);
  return fmt::format("{}", fmt::join(texts, ". "));
}

std::string thumbnail_prompt(const Shot& shot) {
  const std::string character = field_of(shot, "character"), action = field_of(shot, "action"), own = field_of(shot, "prompt");
  return fmt::format("Storyboard drawing, rough pencil, clear shapes. {}{}", character.empty() ? "" : character + ": ",
                     action.empty() ? own : action);
}

}  // namespace flux2
