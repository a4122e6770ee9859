#include "pipeline/rope_cache.h"

#include <algorithm>

namespace flux2 {

namespace {

constexpr size_t kEntries = 4;  // both passes of guidance, with and without references

}  // namespace

Rope RopeCache::rope_for(Stream& stream, const std::vector<TokenPosition>& positions) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return &e.rope.cosine.stream() == &stream && e.positions == positions; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front({positions, flux2_rope(stream, positions)});
    if (entries_.size() > kEntries) entries_.pop_back();
  }
  return entries_.front().rope;
}

}  // namespace flux2
