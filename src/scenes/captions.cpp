#include "scenes/captions.h"

#include <fmt/format.h>

#include <cctype>

#include "scenes/words.h"

namespace flux2 {

namespace {

std::string pattern_word(ScenePattern pattern) { return pattern == ScenePattern::Stripes ? "stripes" : "dots"; }

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : " ") + part;
  return text;
}

// The scene's content without its background: "a red circle at the top".
std::string content_of(const Scene& scene, SceneRandom& random, const SpriteSheet& sheet) {
  if (scene.kind == Scene::Some) {
    const SceneObject& object = scene.objects.front();
    const std::string noun = noun_of(object, random, sheet);
    const size_t with = std::min(noun.find(" with "), noun.size());
    return number_word(scene.objects.size()) + " " + plural(noun.substr(0, with)) + noun.substr(with);
  }
  if (scene.kind == Scene::Couple) {
    std::string first = with_article(noun_of(scene.objects[0], random, sheet));
    std::string second = with_article(noun_of(scene.objects[1], random, sheet));
    Relation relation = scene.relation;
    if (random.chance(0.3)) {  // the other way round
      std::swap(first, second);
      relation = static_cast<Relation>(static_cast<int>(relation) ^ 1);
    }
    const double form = random.share();
    if (form < 0.36) {  // without a word for the relation, objects are named as one reads: from the left, from the top
      if (relation == Relation::RightOf || relation == Relation::Below) std::swap(first, second);
      return first + (form < 0.3 ? " and " : " next to ") + second;
    }
    if (form < 0.9) return fmt::format("{} {} {}", first, usual_word(words_of(relation), random), second);
    return fmt::format("{} with {} {} it", second, first, usual_word(words_of(relation), random));
  }
  if (scene.objects.empty()) return "nothing";
  const SceneObject& object = scene.objects.front();
  const bool says_size = random.chance(object.size == SizeWord::Medium ? 0.2 : 0.75);
  const std::string size = says_size ? usual_word(words_of(object.size), random) : "";
  const std::string place = random.chance(object.place == Place{} ? 0.5 : 0.85) ? usual_word(words_of(object.place), random) : "";
  return joined({with_article(joined({size, noun_of(object, random, sheet)})), place});
}

}  // namespace

std::string usual_word(const Words& words, SceneRandom& random) {
  return words.size() == 1 || random.chance(0.6) ? words.front() : random.one_of(words);
}

std::string colour_word(int colour, SceneRandom& random) {
  return usual_word(scene_colours().at(static_cast<size_t>(colour)).words, random);
}

std::string noun_of(const SceneObject& object, SceneRandom& random, const SpriteSheet& sheet) {
  if (object.is_thing()) return usual_word(sheet.words(object.thing), random);
  std::string noun = colour_word(object.fill.colour, random) + " " + usual_word(words_of(object.figure), random);
  if (object.fill.pattern != ScenePattern::Plain)
    noun += fmt::format(" with {} {}", colour_word(object.fill.second, random), pattern_word(object.fill.pattern));
  return noun;
}

std::string background_words(const Fill& fill, SceneRandom& random) {
  const std::string colour = colour_word(fill.colour, random);
  if (fill.pattern == ScenePattern::Plain) {
    if (random.chance(0.1)) return "a plain " + colour + " background";
    return with_article(colour) + " background";
  }
  const std::string second = colour_word(fill.second, random);
  if (fill.pattern == ScenePattern::Gradient)
    return fmt::format("a gradient background from {} {} {}", colour, fill.direction == 0 ? "to" : "down to", second);
  return fmt::format("{} background with {} {}", with_article(colour), second, pattern_word(fill.pattern));
}

std::string as_sentence(std::string text, SceneRandom& random) {
  if (text.empty() || !random.chance(0.15)) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with(".") ? text : text + ".";
}

std::string describe(const Scene& scene, SceneRandom& random, const SpriteSheet& sheet) {
  const std::string content = content_of(scene, random, sheet);
  if (random.chance(0.15)) return as_sentence(random.chance(0.3) ? "a picture of " + content : content, random);
  const std::string background = background_words(scene.background, random);
  const bool one = scene.kind == Scene::One;
  switch (random.below(12)) {
    case 0: return as_sentence(fmt::format("a picture of {} on {}", content, background), random);
    case 1: return as_sentence(fmt::format("{} with {}", background, content), random);
    case 2: return as_sentence(fmt::format("on {}, {}", background, content), random);
    case 3: return as_sentence(fmt::format("there {} {} on {}", one ? "is" : "are", content, background), random);
    case 4: return as_sentence(fmt::format("a drawing that shows {} on {}", content, background), random);
    case 5:
      if (scene.background.pattern == ScenePattern::Plain)
        return as_sentence(fmt::format("{}. the background is {}", content, colour_word(scene.background.colour, random)),
                           random);
      break;
    case 6: return as_sentence(fmt::format("{}, {}", content, background.substr(background.find(' ') + 1)), random);
    default: break;
  }
  return as_sentence(fmt::format("{} on {}", content, background), random);
}

}  // namespace flux2
