#include "net/hide_token.h"

#include <string_view>
#include <utility>

namespace flux2 {

std::string hide_token(std::string text, const std::string& token) {
  constexpr std::string_view kHidden = "(token)";
  if (token.empty()) return text;
  for (size_t at = 0; (at = text.find(token, at)) != text.npos; at += kHidden.size()) text.replace(at, token.size(), kHidden);
  return text;
}

Error without_token(const Error& error, const std::string& token) {
  Hint hint = error.hint();
  hint.text = hide_token(std::move(hint.text), token);
  for (Suggestion& s : hint.suggestions) {
    s.name = hide_token(std::move(s.name), token);
    s.value = hide_token(std::move(s.value), token);
  }
  return {error.code(), hide_token(error.what(), token), std::move(hint)};
}

}  // namespace flux2
