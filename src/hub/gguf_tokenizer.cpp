#include "hub/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "hub/name_tests.h"
#include "text/tekken_file.h"
#include "weights/gguf_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kPadding = "tokenizer.ggml.padding_token_id";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTekkenPre = "tekken";
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

const StoredTensor* tekken_tensor(const WeightSource& source) { return NameTests(source).ending("tekken_model"); }

// The first bytes of a file, enough to contain the special tokens of a tokenizer.
std::string beginning_of(const fs::path& path) {
  std::string text(size_t{1} << 18, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace

std::optional<std::string> inner_tekken(const fs::path& file) {
  const auto source = open_weights(file);
  const StoredTensor* t = tekken_tensor(*source);
  if (!t) return std::nullopt;
  std::string text;
  if (t->dtype_name == "F16") {
    const Tensor numbers = source->open(t->name).cast(DType::F32);
    for (float v : std::span(numbers.data<float>(), static_cast<size_t>(numbers.numel()))) {
      if (!(v >= 0 && v < 255.5f)) fail(ErrorCode::BadFile, "{}: {} contains numbers that are not bytes", file.string(), t->name);
      text += static_cast<char>(static_cast<unsigned char>(std::lround(v)));
    }
  } else if (t->dtype_name == "U8" || t->dtype_name == "I8") {
    text.assign(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
  } else {
    fail(ErrorCode::BadFile, "{}: {} has type {}, which is not one for bytes", file.string(), t->name, t->dtype_name);
  }
  return text;
}

std::optional<PromptFormat> likely_format(const fs::path& path) {
  std::error_code unreadable;
  const bool folder = fs::is_directory(path, unreadable);
  if (!folder && (is_gguf(path) || path.extension() == ".safetensors")) {
    if (!is_gguf(path) || tekken_tensor(*open_weights(path))) return PromptFormat::Mistral;
    const GgufFile gguf(path);
    const auto pre = gguf.header().values.find(kPre);
    if (pre == gguf.header().values.end()) return std::nullopt;
    return pre->second.text() == kTekkenPre ? PromptFormat::Mistral : PromptFormat::Qwen3;
  }
  for (const fs::path& file : folder ? std::vector<fs::path>{path / "tokenizer.json", path / "tokenizer_config.json",
                                                             path / "added_tokens.json", path / "tekken.json"}
                                     : std::vector<fs::path>{path}) {
    if (file.filename() == "tekken.json" && fs::is_regular_file(file, unreadable)) return PromptFormat::Mistral;
    const std::string text = beginning_of(file);
    if (text.find("[INST]") != std::string::npos) return PromptFormat::Mistral;
    if (text.find("<|im_start|>") != std::string::npos) return PromptFormat::Qwen3;
  }
  return std::nullopt;
}

bool holds_inner_tokenizer(const fs::path& file) {
  std::error_code unreadable;
  if (!fs::is_regular_file(file, unreadable)) return false;
  if (!is_gguf(file) && file.extension() != ".safetensors") return false;
  if (tekken_tensor(*open_weights(file))) return true;
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
    if (const auto pre = header.values.find(kPre); pre != header.values.end() && pre->second.text() == kTekkenPre) {
      files.split = SplitRule::Tekken;
      files.whole_words = true;
      files.pad_token = "<pad>";
    }
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
  if (files.split != SplitRule::Qwen) fail(ErrorCode::Incompatible, "tokenizers of Mistral cannot be written into GGUF files");
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
  return {{kModel, kByteLevel},         {kPre, "qwen2"},    {kTokens, std::move(tokens)}, {kTypes, std::move(types)},
          {kMerges, std::move(merges)}, {kPadding, padding}};
}

fs::path tokenizer_beside(const fs::path& text_encoder) {
  std::error_code unreadable;
  const fs::path folder = fs::is_directory(text_encoder, unreadable) ? text_encoder : fs::absolute(text_encoder).parent_path();
  for (const fs::path& candidate : {folder, folder / "tokenizer", folder.parent_path() / "tokenizer"})
    if (holds_tokenizer(candidate)) return candidate;
  return holds_inner_tokenizer(text_encoder) ? text_encoder : fs::path{};
}

BpeFiles read_tokenizer(const fs::path& path) {
  if (is_gguf(path) || path.extension() == ".safetensors") {
    if (const auto text = inner_tekken(path)) return in_context(path.string(), [&] { return parse_tekken(*text); });
    if (is_gguf(path)) return read_gguf_tokenizer(path);
    fail(ErrorCode::Incompatible, "{} has no tokenizer inside", path.string());
  }
  return read_bpe_files(path);
}

BpeTokenizer load_tokenizer(const fs::path& path, const std::string& system_message) {
  BpeFiles files = read_tokenizer(path);
  BpeTokenizer tokenizer = in_context(path.string(), [&] { return BpeTokenizer(std::move(files)); });
  tokenizer.set_system_message(system_message);
  return tokenizer;
}

}  // namespace flux2
