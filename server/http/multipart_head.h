#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {

// "form-data; name=\"a\"; filename=\"b.png\"" in its parts. Names of parameters are in lower case, quoted values are unquoted.
struct HeaderValue {
  std::string value;  // lower case
  std::vector<std::pair<std::string, std::string>> parameters;

  std::optional<std::string> parameter(std::string_view name) const;
};
HeaderValue parse_header_value(std::string_view text);  // throws InvalidArgument

// What the headers of a part of a form say.
struct PartHead {
  std::string name, file_name, content_type;
  bool is_file = false;
};
PartHead parse_part_head(std::string_view lines, size_t most_headers);  // throws InvalidArgument

std::string lower_case(std::string_view text);  // ASCII

}  // namespace flux2
