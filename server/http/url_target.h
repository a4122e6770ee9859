#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {

// The target of a request line in its parts.
struct UrlTarget {
  std::string path;  // decoded; begins with '/'
  std::vector<std::pair<std::string, std::string>> query;
};

// Reads "/a%20b?x=1" or "http://host/a%20b?x=1". Throws InvalidArgument for what no honest client sends: segments "." and "..",
// backslashes, control characters, broken percent signs, text that is not UTF-8. Decodes once, so "%252e" stays "%2e".
UrlTarget parse_target(std::string_view target);

// The pairs of a query or of a form of type application/x-www-form-urlencoded. At most 256.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

}  // namespace flux2
