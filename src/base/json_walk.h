#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flux2 {

// Receives the elements of a JSON text in order. Used for documents that may be large or hostile: no tree is built, so memory use
// depends only on what the handler keeps.
class JsonHandler {
 public:
  enum class Kind { Null, Bool, Unsigned, Negative, OtherNumber, String };
  struct Scalar {
    Kind kind;
    uint64_t number = 0;          // of Unsigned; 0 or 1 of Bool
    int64_t negative = 0;         // of Negative
    std::string* text = nullptr;  // of String; may be moved from
  };

  virtual ~JsonHandler() = default;

  // `depth` counts the objects and arrays around the piece: 1 for the members of the outermost one.
  virtual void key(std::string& name, int depth) = 0;
  virtual void scalar(const Scalar& value, int depth) = 0;
  virtual void open(bool is_object, int depth) = 0;
  virtual void close(int depth) = 0;
};

// Throws BadFile at the first fault of the text, and whatever the handler throws.
void walk_json(std::string_view text, JsonHandler& handler, int max_depth);

}  // namespace flux2
