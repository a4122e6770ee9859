#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe_files.h"
#include "text/bpe_tables.h"

namespace flux2 {

struct DecodeOptions {
  bool skip_special = false;  // leave out added tokens that are marked as special, such as <|im_end|>
};

// The byte-level BPE tokenizer of Qwen and Mistral: added tokens are found first; the text between them is normalised to NFC
// (Qwen), cut by the pattern of the files (text/pretokenize.h), and each piece's bytes are merged. It is immutable after loading,
// so threads may share it.
class BpeTokenizer {
 public:
  // A folder with tokenizer.json, tekken.json, or vocab.json and merges.txt; or the path of one of the first two.
  static BpeTokenizer load(const std::filesystem::path& path);
  // The texts of a tokenizer.json and, where there is one, its tokenizer_config.json.
  static BpeTokenizer parse(std::string_view tokenizer_json, std::string_view tokenizer_config = {});

  // Throws BadFile if the files contradict each other, or if one of the 256 byte symbols or the pad token is missing.
  explicit BpeTokenizer(BpeFiles files);

  // Accepts any bytes: invalid UTF-8 is read as U+FFFD. No tokens are added before or after.
  std::vector<int32_t> encode(std::string_view text) const;

  // Returns valid UTF-8: bytes that do not form characters become U+FFFD. Ids without a token, which a model with padded
  // embeddings may produce, are skipped.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // The id of a token as its file writes it: "<|im_start|>", or "Ġcat" for " cat".
  std::optional<int32_t> id_of(std::string_view token) const { return tokens_.find(token); }

  // pad_token of tokenizer_config.json; else <|endoftext|> (Qwen) or <pad> (Mistral)
  int32_t pad_id() const { return pad_id_; }

  // What the model's prompts begin with, if its vocabulary does not tell (text/prompt.h).
  const std::string& system_message() const { return system_message_; }
  void set_system_message(std::string message) { system_message_ = std::move(message); }

  int32_t vocab_size() const { return tokens_.id_limit(); }  // one more than the highest id, added tokens included

 private:
  enum class Role : uint8_t { Ordinary, Added, Special };

  void add_merges(const MergeList& merges);
  void add_merges_by_rank();
  void add_added_tokens(const std::vector<AddedToken>& added);
  std::optional<int32_t> added_token_at(std::string_view text, size_t pos) const;
  void encode_between(std::string_view text, std::vector<int32_t>& ids) const;  // text without added tokens
  Role role_of(int32_t id) const;

  TokenTable tokens_;
  MergeTable merges_;
  SplitRule split_ = SplitRule::Qwen;
  bool whole_words_ = false;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Role> roles_;                               // by id
  std::array<std::vector<uint32_t>, 256> added_lengths_;  // of the added tokens by first byte, longest first
  int32_t pad_id_ = 0;
  std::string system_message_;
};

}  // namespace flux2
