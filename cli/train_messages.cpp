#include "cli/train_messages.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>

#include "record/request_fields.h"
#include "train/train_options.h"

namespace flux2 {

namespace {

bool is_train_option(const std::string& word) {
  const auto& ignored = ignored_train_options();
  return find_train_field(word) ||
         std::any_of(ignored.begin(), ignored.end(), [&](const IgnoredTrainOption& o) { return o.name == word; });
}

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_one_of(const std::string& text, std::initializer_list<const char*> all) {
  return std::any_of(all.begin(), all.end(), [&](const char* one) { return text == one; });
}

}  // namespace

std::string with_option_names(const std::string& message) {
  std::string named, between, before;  // `between`: what follows the last option; `before`: the word before this one
  for (size_t at = 0; at < message.size();) {
    size_t end = at;
    while (end < message.size() && is_letter(message[end])) ++end;
    if (end == at) {
      between += message[at];
      named += message[at++];
      continue;
    }
    const std::string word = message.substr(at, end - at);
    const bool has_underscore = word.find('_') != word.npos;
    const bool option = is_train_option(word) || (at == 0 && has_underscore && find_field(word));  // blocks_to_swap
    if (at == 0 && !option) return message;
    // Some names, such as full and train, are usual words too.
    const bool is_named = option && (has_underscore || at == 0 || is_one_of(before, {"needs", "need", "with"}) ||
                                     is_one_of(between, {", ", " and ", " or "}));
    if (is_named) named += "--";
    between = is_named ? "" : between + word;
    named += before = word;
    at = end;
  }
  return named;
}

}  // namespace flux2
