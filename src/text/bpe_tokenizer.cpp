#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "text/bpe_merge.h"
#include "text/byte_symbols.h"
#include "text/pretokenize.h"
#include "text/unicode.h"

namespace flux2 {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

}  // namespace

BpeTokenizer BpeTokenizer::load(const std::filesystem::path& path) {
  BpeFiles files = read_bpe_files(path);
  return in_context(path.string(), [&] { return BpeTokenizer(std::move(files)); });
}

BpeTokenizer BpeTokenizer::parse(std::string_view tokenizer_json, std::string_view tokenizer_config) {
  return BpeTokenizer(parse_bpe_files(tokenizer_json, tokenizer_config));
}

BpeTokenizer::BpeTokenizer(BpeFiles files)
    : tokens_(std::move(files.vocabulary)), merges_(files.merges.size()), split_(files.split), whole_words_(files.whole_words) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_byte_symbol(symbol, static_cast<unsigned char>(byte));
    const auto id = tokens_.find(symbol);
    if (!id) fail(ErrorCode::BadFile, "the vocabulary has no token \"{}\" for the byte {:#04x}", symbol, byte);
    byte_ids_[byte] = *id;
  }
  if (files.by_rank) add_merges_by_rank();
  else add_merges(files.merges);
  add_added_tokens(files.added);
  const auto pad = tokens_.find(files.pad_token);
  if (!pad) fail(ErrorCode::BadFile, "the pad token \"{}\" is not in the vocabulary", files.pad_token);
  pad_id_ = *pad;
}

void BpeTokenizer::add_merges(const MergeList& merges) {
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto id = [&](std::string_view token) {
      const auto found = tokens_.find(token);
      if (!found) fail(ErrorCode::BadFile, "merge {} needs \"{}\", which is not in the vocabulary", i, token);
      return *found;
    };
    merges_.put({id(merges.left(i)), id(merges.right(i)), static_cast<uint32_t>(i), id(merges.merged(i))});
  }
}

// Two neighbours merge if their concatenation is a token; its id is the rank.
void BpeTokenizer::add_merges_by_rank() {
  std::vector<Merge> found;
  for (int32_t id = 0; id < tokens_.id_limit(); ++id) {
    const std::string_view token = tokens_[id];
    for (size_t middle = 0; middle < token.size();) {
      next_code_point(token, middle);
      if (middle >= token.size()) break;
      const auto left = tokens_.find(token.substr(0, middle)), right = tokens_.find(token.substr(middle));
      if (left && right) found.push_back({*left, *right, static_cast<uint32_t>(id), id});
    }
  }
  merges_ = MergeTable(found.size());
  for (const Merge& merge : found) merges_.put(merge);
}

void BpeTokenizer::add_added_tokens(const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    tokens_.add(token.content, token.id);
    roles_.resize(tokens_.id_limit(), Role::Ordinary);
    Role& role = roles_[token.id];
    if (role == Role::Ordinary) {
      added_lengths_[static_cast<unsigned char>(token.content[0])].push_back(static_cast<uint32_t>(token.content.size()));
    }
    if (role != Role::Special) role = token.special ? Role::Special : Role::Added;
  }
  for (auto& lengths : added_lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

BpeTokenizer::Role BpeTokenizer::role_of(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < roles_.size() ? roles_[id] : Role::Ordinary;
}

std::optional<int32_t> BpeTokenizer::added_token_at(std::string_view text, size_t pos) const {
  for (uint32_t length : added_lengths_[static_cast<unsigned char>(text[pos])]) {
    if (length > text.size() - pos) continue;
    const auto id = tokens_.find(text.substr(pos, length));
    if (id && role_of(*id) != Role::Ordinary) return id;
  }
  return std::nullopt;
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text) const {
  check(text.size() <= kMaxTextBytes, "a text of {} bytes is too long to encode", text.size());
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = replace_invalid_utf8(text);

  std::vector<int32_t> ids;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const auto id = added_token_at(text, pos);
    if (!id) {
      ++pos;
      continue;
    }
    encode_between(text.substr(begin, pos - begin), ids);
    ids.push_back(*id);
    pos += tokens_[*id].size();
    begin = pos;
  }
  encode_between(text.substr(begin), ids);
  return ids;
}

void BpeTokenizer::encode_between(std::string_view text, std::vector<int32_t>& ids) const {
  // Only Qwen normalises. The reference's normaliser stops at Unicode 9: it leaves the order of the 98 combining marks added
  // since as it was.
  std::string normalized;
  if (split_ == SplitRule::Qwen) text = normalized = normalize_nfc(text);
  std::vector<int32_t> word;
  std::string symbols;
  for (std::string_view piece : pretokenize(text, split_)) {
    if (whole_words_) {
      symbols.clear();
      for (char c : piece) append_byte_symbol(symbols, static_cast<unsigned char>(c));
      if (const auto id = tokens_.find(symbols); id && role_of(*id) == Role::Ordinary) {
        ids.push_back(*id);
        continue;
      }
    }
    word.clear();
    for (char c : piece) word.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merge_symbols(merges_, word, ids);
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (int32_t id : ids) {
    const Role role = role_of(id);
    if (role == Role::Ordinary) {
      append_bytes_of(bytes, tokens_[id]);
    } else if (role == Role::Added || !options.skip_special) {
      bytes += tokens_[id];
    }
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

}  // namespace flux2
