#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// An http or https address in its parts.
struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; an IPv6 address in its brackets
  int port = 0;        // never 0 once parsed
  std::string target;  // path and query, beginning with a slash

  std::string text() const;
  std::string origin() const;  // scheme://host:port
  bool secure() const { return scheme == "https"; }
  bool loopback() const;  // this machine
};

// Throws InvalidArgument for anything else than http and https, for credentials inside and for control characters.
Url parse_url(std::string_view text);

bool same_origin(const std::string& a, const std::string& b);

// Resolves a Location header relative to the URL that sent it.
bool is_relative_location(std::string_view location);
std::string resolve_location(const std::string& base, std::string_view location);

// The last piece of the path, percent signs decoded; empty when the path ends in a slash.
std::string file_name_of(const Url& url);

std::string url_quoted(std::string_view text);       // for one piece of a path: "/" becomes %2F
std::string url_quoted_path(std::string_view path);  // keeps "/"
std::string url_unquoted(std::string_view text);

}  // namespace flux2
