#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/data/dataset.h"

namespace flux2 {

// A caption as the text encoder reads it: T slots, mask 0 for padding.
struct CaptionTokens {
  std::vector<int32_t> ids, mask;
};

// The captions of datasets as tokens, for training the text encoder too: its states change with every step, so they are
// not cached.
class CaptionTable {
 public:
  using Tokenise = std::function<CaptionTokens(const std::string& text)>;
  CaptionTable(const std::vector<Dataset>& datasets, const Tokenise& tokenise);

  struct Entry {
    std::vector<CaptionTokens> variants;  // one, or several orders of its tags
    std::string hash;                     // of the texts
  };
  const Entry* find(size_t dataset, const std::string& stem) const;  // null: the item is not in the dataset
  const CaptionTokens& empty() const { return empty_; }              // of the empty caption

 private:
  std::map<std::pair<size_t, std::string>, Entry> entries_;
  CaptionTokens empty_;
};

}  // namespace flux2
