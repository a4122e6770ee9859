#include "cli/train_messages.h"

#include <algorithm>
#include <cctype>

#include "train/train_options.h"

namespace flux2 {

std::string with_option_names(const std::string& message) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const auto is_option = [](const std::string& word) {
    return find_train_field(word) || std::any_of(ignored_train_options().begin(), ignored_train_options().end(),
                                                 [&](const IgnoredTrainOption& o) { return o.name == word; });
  };
  std::string named, before;  // `before`: the word before this one
  for (size_t at = 0; at < message.size();) {
    size_t end = at;
    while (end < message.size() && is_letter(message[end])) ++end;
    if (end == at) {
      named += message[at++];
      continue;
    }
    const std::string word = message.substr(at, end - at);
    if (at == 0 && !is_option(word)) return message;
    // Some names, such as full and train, are usual words too.
    const bool usual_word = word.find('_') == word.npos && at > 0 && before != "needs" && before != "need" && before != "with";
    if (is_option(word) && !usual_word) named += "--";
    named += before = word;
    at = end;
  }
  return named;
}

}  // namespace flux2
