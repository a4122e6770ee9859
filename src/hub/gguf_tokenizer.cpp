#include "hub/gguf_tokenizer.h"

#include "base/error.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "weights/gguf_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kPadding = "tokenizer.ggml.padding_token_id";
constexpr const char* kByteLevel = "gpt2";  // what llama.cpp calls byte-level BPE

enum TokenType : int32_t { Normal = 1, Control = 3, UserDefined = 4, Unused = 5 };

const GgufValue& value_of(const GgufHeader& header, const char* key) {
  const auto at = header.values.find(key);
  if (at == header.values.end()) fail(ErrorCode::BadFile, "the file contains tokens but no {}", key);
  return at->second;
}

void add_tokens(const GgufHeader& header, BpeFiles& files) {
  const std::vector<std::string> tokens = value_of(header, kTokens).strings();
  const std::vector<int64_t> types = value_of(header, kTypes).integers();
  if (types.size() != tokens.size())
    fail(ErrorCode::BadFile, "{} contains {} kinds for {} tokens", kTypes, types.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    if (types[i] == Control || types[i] == UserDefined) {
      if (tokens[i].empty()) fail(ErrorCode::BadFile, "token {} is empty", i);
      files.added.push_back({tokens[i], id, types[i] == Control});
    } else if (types[i] != Unused) {
      files.vocabulary.add(tokens[i], id);
    }
  }
}

void choose_padding(const GgufHeader& header, BpeFiles& files) {
  for (const AddedToken& token : files.added)
    if (token.content == files.pad_token) return;
  const auto at = header.values.find(kPadding);
  const auto id = at == header.values.end() ? std::nullopt : at->second.unsigned_number();
  for (const AddedToken& token : files.added)
    if (id && token.id == static_cast<int64_t>(*id)) files.pad_token = token.content;
}

}  // namespace

bool holds_gguf_tokenizer(const fs::path& file) {
  if (!is_gguf(file)) return false;
  const GgufFile gguf(file);
  const auto& values = gguf.header().values;
  const auto model = values.find(kModel);
  return model != values.end() && model->second.text() == kByteLevel && values.contains(kTokens);
}

BpeFiles read_gguf_tokenizer(const fs::path& file) {
  const GgufFile gguf(file);
  const GgufHeader& header = gguf.header();
  return in_context(file.string(), [&] {
    const std::string model = value_of(header, kModel).text();
    if (model != kByteLevel)
      fail(ErrorCode::Incompatible, "its tokenizer is of type {}; only byte-level tokenizers are supported", printable(model));
    BpeFiles files;
    add_tokens(header, files);
    for (const std::string& merge : value_of(header, kMerges).strings()) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size())
        fail(ErrorCode::BadFile, "the merge \"{}\" is not a pair", printable(merge));
      files.merges.add(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
    }
    choose_padding(header, files);
    return files;
  });
}

std::vector<GgufPair> gguf_tokenizer_pairs(const BpeFiles& files, int64_t vocabulary) {
  const auto count = static_cast<size_t>(vocabulary);
  std::vector<std::string> tokens(count), merges;
  std::vector<int32_t> types(count, Unused);
  const auto set = [&](int64_t id, std::string_view token, TokenType type) {
    if (id >= vocabulary)
      fail(ErrorCode::Incompatible, "the tokenizer has a token with id {}, but the text encoder knows only {} tokens", id,
           vocabulary);
    tokens[static_cast<size_t>(id)] = token;
    types[static_cast<size_t>(id)] = type;
  };
  for (int32_t id = 0; id < files.vocabulary.id_limit(); ++id)
    if (!files.vocabulary[id].empty()) set(id, files.vocabulary[id], Normal);
  uint32_t padding = 0;
  for (const AddedToken& token : files.added) {
    set(token.id, token.content, token.special ? Control : UserDefined);
    if (token.content == files.pad_token) padding = static_cast<uint32_t>(token.id);
  }
  for (size_t i = 0; i < count; ++i)
    if (types[i] == Unused) tokens[i] = fmt::format("[PAD{}]", i);
  for (size_t i = 0; i < files.merges.size(); ++i)
    merges.push_back(std::string(files.merges.left(i)) + " " + std::string(files.merges.right(i)));
  return {{kModel, kByteLevel},       {"tokenizer.ggml.pre", "qwen2"}, {kTokens, std::move(tokens)},
          {kTypes, std::move(types)}, {kMerges, std::move(merges)},    {kPadding, padding}};
}

fs::path tokenizer_beside(const fs::path& text_encoder) {
  std::error_code unreadable;
  const fs::path folder = fs::is_directory(text_encoder, unreadable) ? text_encoder : fs::absolute(text_encoder).parent_path();
  for (const fs::path& candidate : {folder, folder / "tokenizer", folder.parent_path() / "tokenizer"})
    if (holds_tokenizer(candidate)) return candidate;
  return holds_gguf_tokenizer(text_encoder) ? text_encoder : fs::path{};
}

BpeTokenizer load_tokenizer(const fs::path& path) {
  return is_gguf(path) ? BpeTokenizer(read_gguf_tokenizer(path)) : BpeTokenizer::load(path);
}

}  // namespace flux2
