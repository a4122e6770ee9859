#include "scenes/words.h"

#include "base/error.h"

namespace flux2 {

const std::vector<SceneColour>& scene_colours() {
  static const std::vector<SceneColour> colours = {
      {{"red"}, {226, 42, 40}},
      {{"orange"}, {255, 146, 30}},
      {{"yellow"}, {255, 214, 42}},
      {{"green"}, {45, 155, 66}},
      {{"cyan", "turquoise"}, {76, 208, 226}},
      {{"blue"}, {42, 92, 224}},
      {{"purple", "violet"}, {135, 56, 190}},
      {{"pink"}, {255, 145, 200}},
      {{"brown"}, {116, 73, 36}},
      {{"black"}, {16, 16, 16}},
      {{"gray", "grey"}, {142, 142, 142}},
      {{"white"}, {255, 255, 255}},
  };
  return colours;
}

const Words& words_of(Figure figure) {
  static const std::vector<Words> words = {{"circle", "disc"}, {"square", "box"},      {"triangle"},     {"star"},
                                           {"heart"},          {"diamond", "rhombus"}, {"ring", "hoop"}, {"cross", "plus sign"}};
  return words.at(static_cast<size_t>(figure));
}

const Words& words_of(SizeWord size) {
  static const std::vector<Words> words = {{"small", "little", "tiny"}, {"medium", "medium-sized"}, {"large", "big", "huge"}};
  return words.at(static_cast<size_t>(size));
}

const Words& words_of(Place place) {
  static const std::vector<Words> words = {
      {"at the top left", "in the top left corner", "in the upper left"},
      {"at the top", "near the top"},
      {"at the top right", "in the top right corner", "in the upper right"},
      {"on the left", "at the left"},
      {"in the center", "in the middle", "in the centre"},
      {"on the right", "at the right"},
      {"at the bottom left", "in the bottom left corner", "in the lower left"},
      {"at the bottom", "near the bottom"},
      {"at the bottom right", "in the bottom right corner", "in the lower right"},
  };
  return words.at(static_cast<size_t>(3 * place.row + place.column));
}

const Words& words_of(Relation relation) {
  static const std::vector<Words> words = {
      {"to the left of", "left of"}, {"to the right of", "right of"}, {"above", "over"}, {"below", "under"}};
  return words.at(static_cast<size_t>(relation));
}

const std::string& number_word(size_t count) {
  static const std::vector<std::string> words = {"no", "one", "two", "three", "four"};
  return words.at(count);
}

std::string plural(const std::string& word) {
  const auto ends = [&](const char* end) { return word.ends_with(end); };
  if (const size_t of = word.find(" of "); of != word.npos) return plural(word.substr(0, of)) + word.substr(of);
  if (ends("cherries") || ends("fish")) return word;
  if (ends("cactus")) return word.substr(0, word.size() - 2) + "i";
  if (ends("fly")) return word.substr(0, word.size() - 1) + "ies";
  if (ends("berry")) return word.substr(0, word.size() - 1) + "ies";
  if (ends("puppy") || ends("kitty")) return word.substr(0, word.size() - 1) + "ies";
  if (ends("s") || ends("x") || ends("ch") || ends("sh")) return word + "es";
  return word + "s";
}

std::string with_article(const std::string& words) {
  if (words.starts_with("cherries")) return words;
  const bool vowel = !words.empty() && std::string("aeiou").find(words[0]) != std::string::npos;
  return (vowel ? "an " : "a ") + words;
}

Fill plain_fill(int colour) {
  Fill fill;
  fill.colour = colour;
  fill.rgb = scene_colours().at(static_cast<size_t>(colour)).rgb;
  return fill;
}

}  // namespace flux2
