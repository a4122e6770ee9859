#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "tests/fuzz/target.h"
#include "text/bpe_tokenizer.h"
#include "text/prompt.h"
#include "text/unicode.h"

// Three parts with a zero byte between: a tokenizer.json, a tokenizer_config.json, a text. Whatever they say, reading
// them ends in a tokenizer or an Error, encoding in ids of the vocabulary, and decoding in valid UTF-8.
FUZZ_TARGET(tokenizer) {
  using namespace flux2;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next_part = [&] {
    const std::string_view part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return part;
  };
  const std::string_view json = next_part(), config = next_part(), text = rest;

  const std::string normalized = normalize_nfc(replace_invalid_utf8(text));
  if (!is_valid_utf8(normalized) || normalize_nfc(normalized) != normalized) std::abort();
  try {
    const BpeTokenizer tokenizer = BpeTokenizer::parse(json, config);
    const std::vector<int32_t> ids = tokenizer.encode(text);
    for (int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
    if (!is_valid_utf8(tokenizer.decode(ids))) std::abort();
    if (tokenize_prompt(tokenizer, text, 16).ids.size() != 16) std::abort();
  } catch (const Error&) {}
}
