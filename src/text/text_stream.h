#pragma once

#include <string>
#include <vector>

#include "text/bpe_tokenizer.h"

namespace flux2 {

// The text of tokens that come one by one. Bytes that do not yet form a character are held back.
class TextStream {
 public:
  // The tokenizer must outlive it.
  explicit TextStream(const BpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Returns what can be shown after this token: nothing, or whole characters.
  std::string add(int32_t id);
  std::string text() const { return tokenizer_.decode(ids_, {.skip_special = true}); }

 private:
  const BpeTokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t shown_ = 0;
};

}  // namespace flux2
