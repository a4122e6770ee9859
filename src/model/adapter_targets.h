#pragma once

#include <map>
#include <string>
#include <string_view>

#include "model/flux2_config.h"
#include "weights/shard.h"

namespace flux2 {

// The published model of that width, for messages: "klein 4B"; "a custom size" when there is none.
const char* size_for_width(int64_t width);

// Where an adapter's module acts: rows of a weight under its canonical name.
struct AdapterTarget {
  std::string weight;  // "double_blocks.0.img_attn.qkv.weight"
  IndexRange rows;
  int64_t in = 0;
  bool halves_exchanged = false;  // the module has the two halves of its rows in the opposite order
};

// Every name that a file may use for a linear layer of this model, in any dialect, prefix and spelling. Dots and underscores are
// treated as equal, so there is no need to guess which underscore was a dot.
class AdapterTargets {
 public:
  explicit AdapterTargets(const Flux2Config& config);

  const AdapterTarget* find(std::string_view module) const;  // null: no layer of this model

 private:
  void add(std::string_view name, const AdapterTarget& target);

  std::map<std::string, AdapterTarget, std::less<>> targets_;
};

}  // namespace flux2
