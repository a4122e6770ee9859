#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_tables.h"
#include "text/pretokenize.h"

namespace flux2 {

// The merges of a tokenizer in rank order, as the file writes them: two tokens that become one, their concatenation.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right);
  size_t size() const { return entries_.size(); }
  std::string_view left(size_t i) const { return merged(i).substr(0, entries_[i].left); }
  std::string_view right(size_t i) const { return merged(i).substr(entries_[i].left); }
  std::string_view merged(size_t i) const { return std::string_view(bytes_).substr(entries_[i].begin, entries_[i].size); }

 private:
  struct Entry {
    uint32_t begin, left, size;
  };
  std::string bytes_;
  std::vector<Entry> entries_;
};

// A token that is matched as a whole before the text is split and merged.
struct AddedToken {
  std::string content;
  int64_t id = -1;
  bool special = false;  // left out by decode(…, {.skip_special = true})
};

// The contents of the files of a byte-level BPE tokenizer of Qwen or Mistral. Strings use the file's byte symbols ("Ġcat").
struct BpeFiles {
  TokenTable vocabulary;
  MergeList merges;
  SplitRule split = SplitRule::Qwen;
  bool whole_words = false;  // a piece that is a token is not merged: that token stands for it ("ignore_merges")
  bool by_rank = false;      // no merges are listed: tokens with lower ids are merged first (tekken.json)
  std::vector<AddedToken> added;
  std::string pad_token = "<|endoftext|>";
};

// A folder with tokenizer.json, or with tekken.json, or with vocab.json and merges.txt; or the path of one of the first two.
// tokenizer_config.json in the same folder (and added_tokens.json for the pair) is read too.
// Throws NotFound, BadFile, or Incompatible for a tokenizer of another kind than this program implements.
BpeFiles read_bpe_files(const std::filesystem::path& path);

// The same from the text of a tokenizer.json and, unless empty, of a tokenizer_config.json.
BpeFiles parse_bpe_files(std::string_view tokenizer_json, std::string_view tokenizer_config);

// The same from the texts of vocab.json and merges.txt and, unless empty, the other two.
BpeFiles parse_bpe_files(std::string_view vocab_json, std::string_view merges_txt, std::string_view tokenizer_config,
                         std::string_view added_tokens_json);

}  // namespace flux2
