#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "weights/weight_source.h"

namespace flux2 {

// Questions about the stored names of a file, whatever prefix they carry.
class NameTests {
 public:
  explicit NameTests(const WeightSource& source) : source_(source) {}

  const StoredTensor* ending(std::string_view tail) const {
    return first([&](std::string_view n) { return at_component(n, n.size() - std::min(n.size(), tail.size()), tail); });
  }
  // Some name has `part` at its beginning or after a dot.
  const StoredTensor* containing(std::string_view part) const {
    return first([&](std::string_view n) {
      for (size_t at = n.find(part); at != std::string_view::npos; at = n.find(part, at + 1))
        if (at_component(n, at, part)) return true;
      return false;
    });
  }

  // One more than the highest number behind `part`: blocks of a foreign model.
  int64_t count(std::string_view part) const {
    int64_t highest = -1;
    for (const StoredTensor& t : source_.tensors()) {
      const size_t at = t.name.find(part);
      if (at == std::string::npos || !at_component(t.name, at, part)) continue;
      int64_t number = -1;
      for (size_t i = at + part.size(); i < t.name.size() && t.name[i] >= '0' && t.name[i] <= '9' && number < 100000; ++i)
        number = std::max<int64_t>(number, 0) * 10 + (t.name[i] - '0');
      highest = std::max(highest, number);
    }
    return highest + 1;
  }

 private:
  static bool at_component(std::string_view name, size_t at, std::string_view part) {
    return name.substr(at).starts_with(part) && (at == 0 || name[at - 1] == '.');
  }
  template <class Test>
  const StoredTensor* first(const Test& test) const {
    for (const StoredTensor& t : source_.tensors())
      if (test(t.name)) return &t;
    return nullptr;
  }

  const WeightSource& source_;
};

}  // namespace flux2
