#include "server/http/url_target.h"

#include "base/error.h"
#include "base/text.h"

namespace flux2 {
namespace {

constexpr size_t kMostPairs = 256;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 1 < text.size() ? digit_of(text[i + 1]) : -1, low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
      check(high >= 0 && low >= 0, "The address has a '%' without two hexadecimal digits.");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  check(is_utf8(out), "The address is not UTF-8.");
  check(out.find('\0') == out.npos, "The address contains a NUL character.");
  return out;
}

void check_path(std::string_view path) {
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    check(byte >= 0x20 && byte != 0x7f && c != '\\', "The path contains a control character or a backslash.");
  }
  size_t begin = 1;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    check(segment != "." && segment != "..", "The path contains \"{}\".", segment);
    begin = end + 1;
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.empty()) continue;
    check(pairs.size() < kMostPairs, "The query has more than {} arguments.", kMostPairs);
    const size_t equals = pair.find('=');
    pairs.emplace_back(percent_decoded(pair.substr(0, equals), true),
                       equals == pair.npos ? std::string() : percent_decoded(pair.substr(equals + 1), true));
  }
  return pairs;
}

UrlTarget parse_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      const size_t slash = target.find_first_of("/?", scheme.size());
      target = slash == target.npos ? "/" : target.substr(slash);
      break;
    }
  check(target.starts_with('/'), "The address of a request begins with '/'.");
  for (const char c : target) {
    const auto byte = static_cast<unsigned char>(c);
    check(byte > 0x20 && byte != 0x7f && c != '#', "The address contains a character that must be percent-encoded.");
  }
  const size_t question = target.find('?');
  UrlTarget out;
  out.path = percent_decoded(target.substr(0, question), false);
  check_path(out.path);
  if (question != target.npos) out.query = parse_query(target.substr(question + 1));
  return out;
}

}  // namespace flux2
