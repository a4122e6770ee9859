#pragma once

#include <list>
#include <vector>

#include "nn/rope_table.h"

namespace flux2 {

// The tables of rotary angles that were used last. Jobs of one size share one, which takes the host milliseconds to compute, for
// which a GPU would wait.
class RopeCache {
 public:
  Rope rope_for(Stream& stream, const std::vector<TokenPosition>& positions);
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::vector<TokenPosition> positions;
    Rope rope;
  };
  std::list<Entry> entries_;  // the one that was used last comes first
};

}  // namespace flux2
