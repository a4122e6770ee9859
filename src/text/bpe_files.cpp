#include "text/bpe_files.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "text/json_paths.h"
#include "text/pretokenize.h"
#include "text/tekken_file.h"

namespace flux2 {

namespace {

using Path = std::span<const JsonStep>;
using Kind = JsonScalar::Kind;

// Far larger than any tokenizer (Qwen3: 11 MB, Tekken: 19 MB), and small enough that offsets fit into 32 bits.
constexpr size_t kMaxFileBytes = size_t{1} << 28;

constexpr const char* kMistralPad = "<pad>";

[[noreturn]] void fail_incompatible(const std::string& sentence) {
  throw Error(ErrorCode::Incompatible, sentence, "use the tokenizer folder that belongs to the text encoder");
}

void walk(std::string_view text, const JsonVisitor& visit) {
  if (text.size() > kMaxFileBytes) fail(ErrorCode::BadFile, "{} bytes are too many for a tokenizer", text.size());
  walk_json_paths(text, visit);
}

int64_t id_of(const JsonScalar& value, std::string_view token) {
  if (value.kind != Kind::Integer) fail(ErrorCode::BadFile, "the id of token \"{}\" is not an integer", token);
  return value.integer;
}

// One field of an added token's object, which tokenizer.json and tokenizer_config.json write alike.
void set_field(AddedToken& token, const std::string& field, const JsonScalar& value) {
  if (field == "content" && value.is_string()) token.content = value.string;
  if (field == "id") token.id = id_of(value, token.content);
  if (field == "special") token.special = value.boolean;
  if ((field == "lstrip" || field == "rstrip" || field == "single_word") && value.boolean) {
    fail_incompatible(fmt::format("added token {} sets {}, which this program does not implement", token.id, field));
  }
}

// "left right": neither side holds a space, since a space is a symbol of its own in these files.
void add_merge_line(MergeList& merges, std::string_view line) {
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    fail(ErrorCode::BadFile, "merge {} is \"{}\", not two tokens with a space between", merges.size(), line);
  }
  merges.add(line.substr(0, space), line.substr(space + 1));
}

class TokenizerJson {
 public:
  explicit TokenizerJson(BpeFiles& files) : files_(files) {}

  void visit(Path path, const JsonScalar& value) {
    if (path.empty()) return;
    const std::string& section = path[0].key;
    if (section == "model") {
      model(path, value);
    } else if (section == "added_tokens" && path.size() == 3) {
      const auto index = static_cast<size_t>(path[1].index);
      if (path[1].index < 0) fail(ErrorCode::BadFile, "added_tokens is not a list");
      if (path[1].index >= TokenTable::kMaxIds) fail(ErrorCode::BadFile, "there are too many added tokens");
      if (index >= files_.added.size()) files_.added.resize(index + 1);
      set_field(files_.added[index], path[2].key, value);
    } else if (section == "normalizer") {
      if (path.back().key == "type" && value.string != "Sequence") normalizer_ += value.string;
    } else if (section == "pre_tokenizer") {
      pre_tokenizer(path.back().key, value);
    }
  }

  void finish() {
    if (has_left_) fail(ErrorCode::BadFile, "merge {} has only one token", files_.merges.size());
    const auto rule = split_rule_of(pattern_);
    if (!rule) {
      if (pattern_.empty()) fail_incompatible("the tokenizer has no split pattern");
      fail_incompatible("the tokenizer splits text by another pattern than Qwen's and Mistral's: " + pattern_.substr(0, 200));
    }
    files_.split = *rule;
    const bool is_qwen = *rule == SplitRule::Qwen;
    if (is_qwen && normalizer_ != "NFC")
      fail_incompatible(fmt::format("the tokenizer normalises by \"{}\" where Qwen's uses NFC", normalizer_));
    if (!is_qwen && !normalizer_.empty())
      fail_incompatible(fmt::format("the tokenizer normalises by \"{}\" where Mistral's does not", normalizer_));
    if (is_qwen && files_.whole_words) fail_incompatible("the tokenizer sets ignore_merges");
    if (!is_qwen) files_.pad_token = kMistralPad;
  }

 private:
  void model(Path path, const JsonScalar& value) {
    if (path.size() < 2) return;
    const std::string& field = path[1].key;
    if (field == "vocab") {
      if (path.size() == 3 && path[2].index < 0) files_.vocabulary.add(path[2].key, id_of(value, path[2].key));
    } else if (field == "merges") {
      merge(path, value);
    } else if (path.size() == 2) {
      setting(field, value);
    }
  }

  // merges: ["a b", …] in older files, [["a", "b"], …] in newer ones.
  void merge(Path path, const JsonScalar& value) {
    const bool in_pair = path.size() == 4 && path[3].index >= 0;
    if (!value.is_string() || !(in_pair || (path.size() == 3 && path[2].index >= 0))) {
      fail(ErrorCode::BadFile, "merge {} is neither a string nor a pair of strings", files_.merges.size());
    }
    if (!in_pair) return add_merge_line(files_.merges, value.string);
    if (path[3].index > 1 || has_left_ != (path[3].index == 1)) {
      fail(ErrorCode::BadFile, "merge {} does not have two tokens", files_.merges.size());
    }
    if (!has_left_) {
      left_ = value.string;
    } else {
      files_.merges.add(left_, value.string);
    }
    has_left_ = !has_left_;
  }

  void setting(const std::string& field, const JsonScalar& value) {
    if (field == "type" && value.string != "BPE") {
      fail_incompatible(fmt::format("the tokenizer's model is \"{}\", not BPE", value.string));
    }
    if (field == "ignore_merges") files_.whole_words = value.boolean;
    if ((field == "continuing_subword_prefix" || field == "end_of_word_suffix") && !value.string.empty()) {
      fail_incompatible(fmt::format("the tokenizer sets {}", field));
    }
  }

  void pre_tokenizer(const std::string& field, const JsonScalar& value) {
    if (field == "Regex") pattern_ += value.string;
    if ((field == "add_prefix_space" || field == "use_regex") && value.boolean) {
      fail_incompatible(fmt::format("the tokenizer sets {}", field));
    }
  }

  BpeFiles& files_;
  std::string left_, pattern_, normalizer_;
  bool has_left_ = false;
};

// pad_token is a string or an object with a content; added_tokens_decoder maps ids to objects.
void read_config(std::string_view text, BpeFiles& files) {
  if (text.empty()) return;
  const size_t before = files.added.size();
  walk(text, [&](Path path, const JsonScalar& value) {
    if (path.empty()) return;
    const bool is_pad = path[0].key == "pad_token" && (path.size() == 1 || path[1].key == "content");
    if (is_pad && value.is_string()) files.pad_token = value.string;
    if (path[0].key == "added_tokens_decoder" && path.size() == 3) {
      const std::string& key = path[1].key;
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc{} || end != key.data() + key.size()) {
        fail(ErrorCode::BadFile, "added_tokens_decoder has the key \"{}\", which is not an id", key);
      }
      if (files.added.size() == before || files.added.back().id != id) files.added.push_back({.id = id});
      set_field(files.added.back(), path[2].key, value);
    }
  });
}

void read_merges_txt(std::string_view text, MergeList& merges) {
  if (text.size() > kMaxFileBytes) fail(ErrorCode::BadFile, "{} bytes are too many for merges", text.size());
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) add_merge_line(merges, line);
  }
}

void read_token_map(std::string_view text, const std::function<void(const std::string&, int64_t)>& add) {
  walk(text, [&](Path path, const JsonScalar& value) {
    if (path.size() != 1 || path[0].index >= 0) fail(ErrorCode::BadFile, "not a map from tokens to ids");
    add(path[0].key, id_of(value, path[0].key));
  });
}

std::string read_if_there(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_text_file(path, {.bytes = kMaxFileBytes}) : std::string();
}

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
  entries_.push_back({static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(left.size()),
                      static_cast<uint32_t>(left.size() + right.size())});
  bytes_ += left;
  bytes_ += right;
}

BpeFiles parse_bpe_files(std::string_view tokenizer_json, std::string_view tokenizer_config) {
  BpeFiles files;
  in_context("tokenizer.json", [&] {
    TokenizerJson reader(files);
    walk(tokenizer_json, [&](Path path, const JsonScalar& value) { reader.visit(path, value); });
    reader.finish();
  });
  in_context("tokenizer_config.json", [&] { read_config(tokenizer_config, files); });
  return files;
}

BpeFiles parse_bpe_files(std::string_view vocab_json, std::string_view merges_txt, std::string_view tokenizer_config,
                         std::string_view added_tokens_json) {
  BpeFiles files;
  in_context("vocab.json",
             [&] { read_token_map(vocab_json, [&](const std::string& token, int64_t id) { files.vocabulary.add(token, id); }); });
  in_context("merges.txt", [&] { read_merges_txt(merges_txt, files.merges); });
  in_context("tokenizer_config.json", [&] { read_config(tokenizer_config, files); });
  if (!added_tokens_json.empty()) {
    in_context("added_tokens.json", [&] {
      read_token_map(added_tokens_json, [&](const std::string& token, int64_t id) { files.added.push_back({token, id, false}); });
    });
  }
  return files;
}

BpeFiles read_bpe_files(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::filesystem::path folder = is_folder ? path : path.parent_path();
  const std::filesystem::path json = is_folder ? path / "tokenizer.json" : path;
  const std::filesystem::path tekken = is_folder ? path / "tekken.json" : path;
  if (std::filesystem::exists(tekken) && tekken.filename() == "tekken.json" && !(is_folder && std::filesystem::exists(json))) {
    const std::string text = read_text_file(tekken, {.bytes = kMaxFileBytes});
    return in_context(folder.string(), [&] { return parse_tekken(text); });
  }
  const std::string config = read_if_there(folder / "tokenizer_config.json");
  if (std::filesystem::exists(json)) {
    const std::string text = read_text_file(json, {.bytes = kMaxFileBytes});
    return in_context(folder.string(), [&] { return parse_bpe_files(text, config); });
  }
  const std::filesystem::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  if (!is_folder || !std::filesystem::exists(vocab) || !std::filesystem::exists(merges)) {
    throw Error(ErrorCode::NotFound,
                is_folder
                    ? fmt::format("{} has neither tokenizer.json nor tekken.json nor vocab.json with merges.txt", path.string())
                    : fmt::format("{} does not exist", path.string()),
                "name the folder \"tokenizer\" of the model, or a tokenizer.json");
  }
  const std::string vocab_text = read_text_file(vocab, {.bytes = kMaxFileBytes}),
                    merges_text = read_text_file(merges, {.bytes = kMaxFileBytes});
  const std::string added_text = read_if_there(folder / "added_tokens.json");
  return in_context(folder.string(), [&] { return parse_bpe_files(vocab_text, merges_text, config, added_text); });
}

}  // namespace flux2
