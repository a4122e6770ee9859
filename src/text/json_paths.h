#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

// One step from the root of a JSON document towards a value: a key of an object, or a place in an array.
struct JsonStep {
  std::string key;
  int64_t index = -1;  // -1 in an object
};

struct JsonScalar {
  enum class Kind { Null, Bool, Integer, Other, String };  // Other: a number that is not an int64_t

  Kind kind = Kind::Null;
  bool boolean = false;
  int64_t integer = 0;
  std::string_view string;  // valid during the visit

  bool is_string() const { return kind == Kind::String; }
};

using JsonVisitor = std::function<void(std::span<const JsonStep> path, const JsonScalar& value)>;

// Visits the scalars of a JSON text in the order they are written, without keeping the document: a vocabulary of 150,000 tokens
// goes straight into its table. Throws BadFile with the position of the first fault, or if the nesting is deeper than 64. Values
// before that position have already been visited.
void walk_json_paths(std::string_view text, const JsonVisitor& visit);

}  // namespace flux2
