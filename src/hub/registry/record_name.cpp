#include <cctype>
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "hub/registry/registry.h"

namespace flux2 {

void check_model_name(std::string_view name) {
  const bool valid = std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/' || c == '\\';
  });
  if (name.empty() || name.size() > 100 || !valid || name.front() == '-' || name == "." || name == "..")
    throw Error(ErrorCode::InvalidArgument, fmt::format("\"{}\" cannot be the name of a model", printable(name)),
                "a name has 1 to 100 characters, no slash, and does not begin with a dash");
  const bool key_like = name.size() == 10 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
                          return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
                        });
  check(!key_like, "\"{}\" has the form of a key; choose another name", name);
}

}  // namespace flux2
