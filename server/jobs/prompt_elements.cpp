#include "server/jobs/prompt_elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "server/store/asset_catalog.h"
#include "server/store/folded_text.h"
#include "server/store/ids.h"
#include "server/store/triggers.h"

namespace flux2 {

namespace {

// The element that a request names. Own ones win over shared ones.
std::optional<Element> element_named(const std::string& text, const std::vector<Element>& known, const ElementStore& store) {
  if (const std::string id = id_without_prefix(text, "elm_"); !id.empty()) return store.get(id);
  const std::string wanted = folded(trimmed(text)), trigger = folded_trigger(text.starts_with('@') ? text : "@" + text);
  for (const Element& element : known)
    if (folded(element.name) == wanted || folded_trigger(element.trigger) == trigger) return element;
  return std::nullopt;
}

// Which of the elements with this trigger is meant: 0 is best, -1 is out of scope.
int rank_in(const Element& element, const std::string& project, ElementOptions::Scope scope) {
  if (element.project == project) return 0;
  if (scope == ElementOptions::Scope::Project) return -1;
  if (element.project.empty()) return 1;
  return scope == ElementOptions::Scope::All ? 2 : -1;
}

std::vector<std::string> images_for_job(const Element& element, const AssetCatalog& catalog, std::vector<std::string>& warnings) {
  std::vector<std::string> images;
  for (const std::string& id : element.images) {
    if (images.size() >= static_cast<size_t>(std::max<int64_t>(element.max_refs, 0))) break;
    const auto item = catalog.get(id);
    if (item && !item->asset.missing && item->deleted == 0) images.push_back(id);
    else
      warnings.push_back(fmt::format("the image ast_{} of element {} is {}; it is left out", id, printable(element.name),
                                     item && item->deleted != 0 ? "in the trash" : "missing"));
  }
  return images;
}

std::string number_phrase(const std::string& type, const std::vector<int>& numbers) {
  std::string list;
  for (size_t i = 0; i < numbers.size(); ++i)
    list += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  const char* what = type == "character"  ? "the person in"
                     : type == "location" ? "the place in"
                     : type == "style"    ? "the style of"
                                          : "the object in";
  return fmt::format("{} image{} {}", what, numbers.size() > 1 ? "s" : "", list);
}

std::string text_of_element(const Element& element, const std::string& numbers, bool describe) {
  std::string more = numbers;
  if (describe && !element.description.empty()) more += (more.empty() ? "" : "; ") + element.description;
  return more.empty() ? element.name : fmt::format("{} ({})", element.name, more);
}

// `numbers`: of each element, the phrase that names its references.
std::string replaced_text(const std::string& prompt, const ElementsInPrompt& found, const std::vector<std::string>& numbers,
                          ElementOptions::Text mode) {
  const bool describe = mode == ElementOptions::Text::NameAndDescription;
  std::vector<bool> seen(found.elements.size());
  std::string text;
  size_t at = 0;
  for (const ElementMatch& match : found.matches) {
    const bool first = !seen[match.element];
    seen[match.element] = true;
    if (mode == ElementOptions::Text::Keep) continue;
    text += prompt.substr(at, match.begin - at);
    const Element& element = found.elements[match.element];
    text += first ? text_of_element(element, numbers[match.element], describe) : element.name;
    at = match.end;
  }
  text += prompt.substr(at);
  for (size_t i = 0; i < found.elements.size(); ++i)
    if (!seen[i]) text += (trimmed(text).empty() ? "" : ", ") + text_of_element(found.elements[i], numbers[i], describe);
  return text;
}

}  // namespace

bool ElementsInPrompt::has_images() const {
  return std::any_of(images.begin(), images.end(), [](const auto& some) { return !some.empty(); });
}

ElementsInPrompt find_elements(const std::string& prompt, const std::vector<std::string>& named, const std::string& project,
                               const ElementOptions& options, AssetStore& assets,
                               std::vector<HttpError::FieldProblem>& problems) {
  ElementsInPrompt found;
  const ElementStore store(assets.database());
  std::map<std::string, Element> by_trigger;  // in small letters
  std::vector<Element> explicit_ones;
  if (!named.empty()) {
    const std::vector<Element> known = store.list(project, true);
    for (size_t i = 0; i < named.size(); ++i) {
      auto element = element_named(named[i], known, store);
      if (!element) {
        problems.push_back({fmt::format("elements[{}]", i), fmt::format("element \"{}\" not found", printable(named[i]))});
        continue;
      }
      const bool twice =
          std::any_of(explicit_ones.begin(), explicit_ones.end(), [&](const Element& other) { return other.id == element->id; });
      if (twice) continue;
      by_trigger.emplace(folded_trigger(element->trigger), *element);
      explicit_ones.push_back(std::move(*element));
    }
  }
  const std::vector<TriggerWord> words = trigger_words(prompt);
  if (options.scan && !words.empty()) {
    std::set<std::string> folds;
    for (const TriggerWord& word : words) folds.insert(word.fold);
    std::map<std::string, int> ranks;
    for (Element& element : store.with_triggers({folds.begin(), folds.end()})) {
      const std::string fold = folded_trigger(element.trigger);
      const int rank = rank_in(element, project, options.scope);
      const auto before = ranks.find(fold);
      if (rank < 0) {
        found.suggestions.push_back(std::move(element));
      } else if (before != ranks.end() ? rank < before->second : !by_trigger.contains(fold)) {
        ranks[fold] = rank;
        by_trigger[fold] = std::move(element);
      }
    }
    std::erase_if(found.suggestions, [&](const Element& e) { return by_trigger.contains(folded_trigger(e.trigger)); });
  }
  std::map<std::string, size_t> places;  // by id
  const auto place_of = [&](const Element& element) {
    const auto [place, is_new] = places.emplace(element.id, found.elements.size());
    if (is_new) found.elements.push_back(element);
    return place->second;
  };
  for (const TriggerWord& word : words)
    if (const auto element = by_trigger.find(word.fold); element != by_trigger.end())
      found.matches.push_back({.element = place_of(element->second),
                               .begin = word.begin,
                               .end = word.end,
                               .start = word.start,
                               .stop = word.start + word.length});
  for (const Element& element : explicit_ones) place_of(element);
  const AssetCatalog catalog(assets.database());
  for (const Element& element : found.elements) found.images.push_back(images_for_job(element, catalog, found.warnings));
  return found;
}

ComposedPrompt compose(const std::string& prompt, const ElementsInPrompt& found, const std::vector<std::string>& own,
                       const ElementOptions& options, int64_t most_references, int first_number, const AssetStore& assets) {
  ComposedPrompt composed;
  std::map<std::string, int> numbers;  // of references, by the hash of their bytes
  const auto hash_of_asset = [&](const std::string& id) {
    const auto asset = assets.get(id);
    return asset ? asset->sha256 : id;
  };
  const auto number_of_next = [&] { return first_number + static_cast<int>(composed.references.size()); };
  for (const std::string& asset : own) {
    const auto [place, is_new] = numbers.emplace(hash_of_asset(asset), number_of_next());
    if (is_new) composed.references.push_back({asset, ""});
    else composed.warnings.push_back(fmt::format("the reference ast_{} is there twice; it is used once", asset));
  }
  std::vector<std::vector<int>> numbers_of(found.elements.size());
  for (size_t i = 0; i < found.elements.size(); ++i) {
    const Element& element = found.elements[i];
    for (const std::string& asset : found.images[i]) {
      const std::string hash = hash_of_asset(asset);
      if (!numbers.contains(hash) && static_cast<int64_t>(composed.references.size()) >= most_references) {
        composed.warnings.push_back(fmt::format("the image ast_{} of element {} is left out: a job has at most {} references",
                                                asset, printable(element.name), most_references));
        continue;
      }
      const auto [place, is_new] = numbers.emplace(hash, number_of_next());
      if (is_new) composed.references.push_back({asset, element.id});
      numbers_of[i].push_back(place->second);
    }
  }
  const auto with_images = std::count_if(numbers_of.begin(), numbers_of.end(), [](const auto& some) { return !some.empty(); });
  std::vector<std::string> phrases(found.elements.size());
  if (options.number_refs.value_or(with_images >= 2))
    for (size_t i = 0; i < phrases.size(); ++i)
      if (!numbers_of[i].empty()) phrases[i] = number_phrase(found.elements[i].type, numbers_of[i]);
  composed.prompt = replaced_text(prompt, found, phrases, options.text);
  return composed;
}

std::string with_names(const std::string& prompt, const ElementsInPrompt& found) {
  return replaced_text(prompt, found, std::vector<std::string>(found.elements.size()), ElementOptions::Text::NameAndDescription);
}

}  // namespace flux2
