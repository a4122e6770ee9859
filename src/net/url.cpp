#include "net/url.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool unreserved(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' ||
         c == '~';
}

std::string quote(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text)
    if (unreserved(static_cast<unsigned char>(c)) || keep.find(c) != keep.npos) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int port_of(std::string_view digits, std::string_view address) {
  int port = 0;
  const bool plain =
      !digits.empty() && digits.size() <= 5 && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (plain)
    for (const char c : digits) port = port * 10 + (c - '0');
  check(port >= 1 && port <= 65535, "{} has no valid port", printable(address));
  return port;
}

}  // namespace

std::string Url::origin() const { return fmt::format("{}://{}:{}", scheme, host, port); }

std::string Url::text() const {
  const bool usual = port == (secure() ? 443 : 80);
  return (usual ? scheme + "://" + host : origin()) + target;
}

bool Url::loopback() const {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

Url parse_url(std::string_view text) {
  for (const char c : text)
    check(static_cast<unsigned char>(c) > 0x20 && c != 0x7f, "{} is not an address: it holds blanks or control characters",
          printable(text));
  const size_t colon = text.find("://");
  check(colon != text.npos, "{} is not an address: it begins with neither http:// nor https://", printable(text));
  Url url;
  url.scheme = lower(text.substr(0, colon));
  check(url.scheme == "http" || url.scheme == "https", "{} uses {}; only http and https are supported", printable(text),
        printable(url.scheme));
  std::string_view rest = text.substr(colon + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t path = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, path);
  check(authority.find('@') == authority.npos, "the URL at {} contains a name or password; remove it",
        printable(authority.substr(authority.find('@') == authority.npos ? 0 : authority.find('@') + 1)));
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  check(bracket != authority.npos, "{} has no valid host", printable(text));
  const size_t port = authority.find(':', bracket);
  url.host = lower(authority.substr(0, port));
  check(!url.host.empty() && url.host.find_first_of("\\\"<>") == url.host.npos, "{} has no valid host", printable(text));
  url.port = port == authority.npos ? (url.secure() ? 443 : 80) : port_of(authority.substr(port + 1), text);
  url.target = rest.substr(path);
  if (!url.target.starts_with('/')) url.target.insert(0, "/");
  return url;
}

bool same_origin(const std::string& a, const std::string& b) { return parse_url(a).origin() == parse_url(b).origin(); }

bool is_relative_location(std::string_view location) {
  if (location.starts_with("//")) return false;
  const size_t scheme = location.find("://");
  return scheme == location.npos || scheme > location.find_first_of("/?#");
}

std::string resolve_location(const std::string& base, std::string_view location) {
  const Url from = parse_url(base);
  if (location.starts_with("//")) return parse_url(from.scheme + ":" + std::string(location)).text();
  if (!is_relative_location(location)) return parse_url(location).text();
  Url to = from;
  const std::string path = from.target.substr(0, from.target.find('?'));
  if (location.starts_with('/')) to.target = location;
  else if (location.starts_with('?')) to.target = path + std::string(location);
  else to.target = path.substr(0, path.rfind('/') + 1) + std::string(location);
  return parse_url(to.text()).text();
}

std::string file_name_of(const Url& url) {
  const std::string path = url.target.substr(0, url.target.find('?'));
  return url_unquoted(path.substr(path.rfind('/') + 1));
}

std::string url_quoted(std::string_view text) { return quote(text, ""); }
std::string url_quoted_path(std::string_view path) { return quote(path, "/"); }

std::string url_unquoted(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    out += coded ? static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])) : text[i];
    if (coded) i += 2;
  }
  return out;
}

}  // namespace flux2
