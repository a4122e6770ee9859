#include "text/tekken_file.h"

#include <array>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "text/byte_symbols.h"
#include "text/json_paths.h"

namespace flux2 {

namespace {

using Path = std::span<const JsonStep>;
using Kind = JsonScalar::Kind;

constexpr size_t kMaxTekkenBytes = size_t{1} << 28;

// Files up to version 7 do not list their special tokens. The others of the first ids are <SPECIAL_n>.
constexpr std::array<std::string_view, 20> kSpecialTokens = {"<unk>",
                                                             "<s>",
                                                             "</s>",
                                                             "[INST]",
                                                             "[/INST]",
                                                             "[AVAILABLE_TOOLS]",
                                                             "[/AVAILABLE_TOOLS]",
                                                             "[TOOL_RESULTS]",
                                                             "[/TOOL_RESULTS]",
                                                             "[TOOL_CALLS]",
                                                             "[IMG]",
                                                             "<pad>",
                                                             "[IMG_BREAK]",
                                                             "[IMG_END]",
                                                             "[PREFIX]",
                                                             "[MIDDLE]",
                                                             "[SUFFIX]",
                                                             "[SYSTEM_PROMPT]",
                                                             "[/SYSTEM_PROMPT]",
                                                             "[TOOL_CONTENT]"};

struct TekkenText {
  std::string pattern;
  int64_t vocabulary = 0, specials = 0;                                 // ids in use, and how many of them are special
  std::vector<std::pair<int64_t, std::string>> tokens, special_tokens;  // by rank; bytes of ordinary tokens in base64
};

TekkenText read_tekken(std::string_view text) {
  if (text.size() > kMaxTekkenBytes) fail(ErrorCode::BadFile, "{} bytes are too many for a tokenizer", text.size());
  TekkenText t;
  walk_json_paths(text, [&](Path path, const JsonScalar& value) {
    if (path.size() == 2 && path[0].key == "config") {
      if (path[1].key == "pattern" && value.is_string()) t.pattern = value.string;
      const auto number = [&](const char* key, int64_t& target) {
        if (path[1].key != key) return;
        if (value.kind != Kind::Integer || value.integer < 0 || value.integer >= TokenTable::kMaxIds)
          fail(ErrorCode::BadFile, "config.{} is not a possible number of tokens", key);
        target = value.integer;
      };
      number("default_vocab_size", t.vocabulary);
      number("default_num_special_tokens", t.specials);
    }
    if (path.size() != 3 || path[1].index < 0) return;
    const bool special = path[0].key == "special_tokens";
    if (!special && path[0].key != "vocab") return;
    auto& list = special ? t.special_tokens : t.tokens;
    const auto index = static_cast<size_t>(path[1].index);
    if (index >= static_cast<size_t>(TokenTable::kMaxIds)) fail(ErrorCode::BadFile, "there are too many tokens");
    if (index >= list.size()) list.resize(index + 1, {-1, {}});
    if (path[2].key == "rank") {
      if (value.kind != Kind::Integer) fail(ErrorCode::BadFile, "the rank of token {} is not an integer", index);
      list[index].first = value.integer;
    }
    if (path[2].key == (special ? "token_str" : "token_bytes") && value.is_string()) list[index].second = value.string;
  });
  return t;
}

std::string symbols_of(const std::string& base64, int64_t rank) {
  std::vector<std::byte> bytes;
  try {
    bytes = base64_decode(base64);
  } catch (const Error&) {
    fail(ErrorCode::BadFile, "the bytes of the token of rank {} are not valid base64", rank);
  }
  std::string symbols;
  for (std::byte b : bytes) append_byte_symbol(symbols, static_cast<unsigned char>(b));
  return symbols;
}

}  // namespace

std::string tekken_special_token(int64_t id) {
  const auto at = static_cast<size_t>(id);
  return at < kSpecialTokens.size() ? std::string(kSpecialTokens[at]) : fmt::format("<SPECIAL_{}>", id);
}

BpeFiles parse_tekken(std::string_view text) {
  return in_context("tekken.json", [&] {
    const TekkenText t = read_tekken(text);
    const auto rule = split_rule_of(t.pattern);
    if (!rule)
      throw Error(ErrorCode::Incompatible,
                  "the tokenizer splits text by another pattern than Mistral's: " + t.pattern.substr(0, 200),
                  "use the tokenizer that belongs to the text encoder");
    if (t.specials > t.vocabulary)
      fail(ErrorCode::BadFile, "{} special tokens do not fit into a vocabulary of {}", t.specials, t.vocabulary);
    BpeFiles files{.split = *rule, .whole_words = true, .by_rank = true, .pad_token = "<pad>"};
    // Ids of special tokens come first. A vocabulary may list more tokens than are in use.
    for (const auto& [rank, base64] : t.tokens) {
      if (rank < 0) fail(ErrorCode::BadFile, "a token has no rank");
      if (rank < t.vocabulary - t.specials) files.vocabulary.add(symbols_of(base64, rank), rank + t.specials);
    }
    const auto add = [&](int64_t id, std::string_view content) { files.added.push_back({std::string(content), id, true}); };
    if (!t.special_tokens.empty()) {
      for (const auto& [rank, content] : t.special_tokens) {
        if (rank < 0 || rank >= t.specials) fail(ErrorCode::BadFile, "special token {} has rank {}", content, rank);
        add(rank, content);
      }
    } else {
      for (int64_t id = 0; id < t.specials; ++id) add(id, tekken_special_token(id));
    }
    return files;
  });
}

}  // namespace flux2
