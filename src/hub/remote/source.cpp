#include "hub/remote/source.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "hub/remote/hub_cache.h"
#include "net/url.h"

namespace flux2 {

namespace {

bool is_name(std::string_view text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= 96 && std::ranges::all_of(text, plain) && text.front() != '.' && text.front() != '-' &&
         text.find("..") == text.npos && text.find("--") == text.npos;
}

bool is_repository(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != text.npos && is_name(text.substr(0, slash)) && is_name(text.substr(slash + 1));
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

// https://hub/owner/repo[/(blob|resolve|tree)/revision[/path]], with or without a query.
std::optional<Source> page_of_hub(const Url& url, std::string_view endpoint) {
  const std::string origin = url.origin();
  if (origin != parse_url(endpoint).origin() && origin != "https://huggingface.co:443" && origin != "https://hf.co:443")
    return std::nullopt;
  const std::vector<std::string> pieces = split(std::string_view(url.target).substr(1, url.target.find('?') - 1), '/');
  Source source;
  if (pieces.size() < 2 || !is_repository(pieces[0] + "/" + pieces[1])) return std::nullopt;
  source.repository = pieces[0] + "/" + pieces[1];
  if (pieces.size() == 2) return source;
  if (pieces.size() < 4 || (pieces[2] != "blob" && pieces[2] != "resolve" && pieces[2] != "tree")) return std::nullopt;
  source.revision = url_unquoted(pieces[3]);
  std::string path;
  for (size_t i = 4; i < pieces.size(); ++i) path += (path.empty() ? "" : "/") + url_unquoted(pieces[i]);
  if (!path.empty() && !is_safe_path(path)) return std::nullopt;
  if (!path.empty()) source.paths = {path};
  return source;
}

}  // namespace

std::string Source::text() const {
  if (repository.empty()) return url;
  std::string text = repository;
  if (revision != "main") text += "@" + revision;
  if (!variant.empty()) text += ":" + variant;
  for (size_t i = 0; i < paths.size(); ++i) text += (i == 0 ? "::" : "+") + paths[i];
  return text;
}

std::optional<Source> parse_source(std::string_view words, std::string_view endpoint) {
  if (words.starts_with("https://") || words.starts_with("http://")) {
    const Url url = parse_url(words);
    if (auto page = page_of_hub(url, endpoint)) return page;
    check(!file_name_of(url).empty(), "{} does not name a file", printable(words));
    Source source;
    source.url = url.text();
    return source;
  }
  Source source;
  std::string_view rest = words;
  const size_t end = std::min(rest.find_first_of("@:"), rest.size());
  if (!is_repository(rest.substr(0, end))) return std::nullopt;
  source.repository = rest.substr(0, end);
  rest.remove_prefix(end);
  if (rest.starts_with('@')) {
    const size_t stop = std::min(rest.find(':'), rest.size());
    source.revision = rest.substr(1, stop - 1);
    check(is_safe_path(source.revision), "{} has no revision after its @", printable(words));
    rest.remove_prefix(stop);
  }
  const size_t paths = rest.find("::");
  if (rest.starts_with(':') && paths != 0) {
    source.variant = rest.substr(1, paths == rest.npos ? rest.npos : paths - 1);
    check(is_name(source.variant),
          "{} has no variant after the colon; a variant is a word of a file's name, as in owner/repo:Q4_K_M", printable(words));
  }
  if (paths != rest.npos)
    for (std::string path : split(rest.substr(paths + 2), '+')) {
      while (path.ends_with('/')) path.pop_back();
      check(is_safe_path(path), "{} is not a file or folder of a repository", printable(path));
      source.paths.push_back(std::move(path));
    }
  return source;
}

}  // namespace flux2
