#include "text/bpe_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "tests/support/tiny_tokenizer.h"

namespace flux2 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kSentence = "a red cat on a blue house, don't STOP 123\n\n<think>漢字 🦊";

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::path(testing::TempDir()) / fmt::format("flux2_tokenizer_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, const std::string& text) const { std::ofstream(path_ / name, std::ios::binary) << text; }

 private:
  std::filesystem::path path_;
};

// The error of loading the tiny tokenizer after `change`.
Error error_after(const std::function<void(Json&)>& change, std::string_view config = {}) {
  Json json = tiny_tokenizer_json();
  change(json);
  try {
    BpeTokenizer::parse(json.dump(), config);
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorCode::Internal, "nothing was wrong");
}

void expect_error(ErrorCode code, const char* text, const std::function<void(Json&)>& change, std::string_view config = {}) {
  const Error error = error_after(change, config);
  EXPECT_EQ(error.code(), code) << text;
  EXPECT_THAT(error.what(), HasSubstr(text));
}

TEST(BpeFiles, ReadsBothFormsOfMerges) {
  Json json = tiny_tokenizer_json();
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  EXPECT_EQ(BpeTokenizer::parse(json.dump()).encode(kSentence), tiny_tokenizer().encode(kSentence));
}

TEST(BpeFiles, ReadsMergesBeforeTheVocabulary) {
  const Json json = tiny_tokenizer_json();
  Json turned = json;
  turned["model"] = {{"merges", json["model"]["merges"]}, {"vocab", json["model"]["vocab"]}};
  EXPECT_EQ(BpeTokenizer::parse(turned.dump()).encode(kSentence), tiny_tokenizer().encode(kSentence));
}

TEST(BpeFiles, ReadsVocabAndMergesFiles) {
  const Json json = tiny_tokenizer_json();
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\r\n";
  }
  Json added, config;
  for (const Json& token : json["added_tokens"]) {
    added[token["content"].get<std::string>()] = token["id"];
    config["added_tokens_decoder"][std::to_string(token["id"].get<int>())] = token;
  }
  config["pad_token"] = {{"content", "<|im_end|>"}};
  const TemporaryFolder folder;
  folder.write("vocab.json", json["model"]["vocab"].dump());
  folder.write("merges.txt", merges);
  folder.write("added_tokens.json", added.dump());
  EXPECT_EQ(BpeTokenizer::load(folder.path()).encode(kSentence), tiny_tokenizer().encode(kSentence));
  folder.write("tokenizer_config.json", config.dump());
  const BpeTokenizer both = BpeTokenizer::load(folder.path());
  EXPECT_EQ(both.encode(kSentence), tiny_tokenizer().encode(kSentence));
  EXPECT_EQ(both.pad_id(), both.id_of("<|im_end|>"));
  EXPECT_EQ(both.decode(both.encode("<|im_start|>a<think>"), {.skip_special = true}), "a<think>");
}

TEST(BpeFiles, ReadsAFileByItsPath) {
  EXPECT_EQ(BpeTokenizer::load(tiny_tokenizer_folder() / "tokenizer.json").vocab_size(), 387);
}

TEST(BpeFiles, NamesTheMissingFile) {
  const TemporaryFolder folder;
  folder.write("vocab.json", "{}");
  try {
    BpeTokenizer::load(folder.path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("tokenizer.json"), HasSubstr("merges.txt")));
  }
  try {
    BpeTokenizer::load(folder.path() / "nowhere" / "tokenizer.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), HasSubstr("does not exist"));
  }
}

TEST(BpeFiles, NamesOtherKindsOfTokenizer) {
  const auto setting = [](const char* key, Json value) { return [=](Json& j) { j["model"][key] = value; }; };
  expect_error(ErrorCode::Incompatible, "\"WordPiece\", not BPE", setting("type", "WordPiece"));
  expect_error(ErrorCode::Incompatible, "\"Unigram\", not BPE", [](Json& j) {
    j["model"] = {{"type", "Unigram"}, {"vocab", {{"<unk>", 0.0}, {"a", -1.5}}}};
  });
  expect_error(ErrorCode::Incompatible, "ignore_merges", setting("ignore_merges", true));
  expect_error(ErrorCode::Incompatible, "end_of_word_suffix", setting("end_of_word_suffix", "</w>"));
  expect_error(ErrorCode::Incompatible, "another pattern than Qwen's and Mistral's: \\p{N}{1,3}",
               [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}{1,3}"; });
  expect_error(ErrorCode::Incompatible, "no split pattern", [](Json& j) { j["pre_tokenizer"] = nullptr; });
  expect_error(ErrorCode::Incompatible, "add_prefix_space",
               [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; });
  expect_error(ErrorCode::Incompatible, "\"NFKC\"", [](Json& j) { j["normalizer"]["type"] = "NFKC"; });
  expect_error(ErrorCode::Incompatible, "lstrip", [](Json& j) { j["added_tokens"][1]["lstrip"] = true; });
}

TEST(BpeFiles, RefusesBrokenFiles) {
  expect_error(ErrorCode::BadFile, "no token \"Ġ\" for the byte 0x20", [](Json& j) {
    j["model"]["vocab"].erase("Ġ");
    j["model"]["merges"] = Json::array();
  });
  expect_error(ErrorCode::BadFile, "needs \"zzz\", which is not in the vocabulary",
               [](Json& j) { j["model"]["merges"][3][1] = "zzz"; });
  expect_error(ErrorCode::BadFile, "merge 0 does not have two tokens", [](Json& j) { j["model"]["merges"][0].erase(1); });
  expect_error(ErrorCode::BadFile, "does not have two tokens", [](Json& j) { j["model"]["merges"][0].push_back("a"); });
  expect_error(ErrorCode::BadFile, "neither a string nor a pair", [](Json& j) { j["model"]["merges"][0] = 5; });
  expect_error(ErrorCode::BadFile, "not two tokens with a space", [](Json& j) { j["model"]["merges"][0] = "a b c"; });
  expect_error(ErrorCode::BadFile, "has id 4000000000", [](Json& j) { j["model"]["vocab"]["a"] = 4000000000; });
  expect_error(ErrorCode::BadFile, "has id -3", [](Json& j) { j["added_tokens"][0]["id"] = -3; });
  expect_error(ErrorCode::BadFile, "not an integer", [](Json& j) { j["model"]["vocab"]["a"] = "x"; });
  expect_error(ErrorCode::BadFile, "not an integer", [](Json& j) { j["model"]["vocab"]["a"] = 1e30; });
  expect_error(ErrorCode::BadFile, "have the same id 382", [](Json& j) { j["added_tokens"][1]["id"] = 382; });
  expect_error(ErrorCode::BadFile, "empty", [](Json& j) { j["added_tokens"][1].erase("content"); });
  expect_error(ErrorCode::BadFile, "added_tokens is not a list", [](Json& j) { j["added_tokens"] = {{"a", {{"id", 1}}}}; });
  expect_error(
      ErrorCode::BadFile, "pad token \"<none>\"", [](Json&) {}, R"({"pad_token": "<none>"})");
  expect_error(
      ErrorCode::BadFile, "which is not an id", [](Json&) {}, R"({"added_tokens_decoder": {"x": {"id": 1}}})");
  expect_error(
      ErrorCode::BadFile, "tokenizer_config.json: not valid JSON", [](Json&) {}, "{");
}

TEST(BpeFiles, RefusesTruncatedFilesWhereverTheyEnd) {
  const std::string text = tiny_tokenizer_json().dump();
  for (size_t size = 0; size < text.size(); size += 97) {
    EXPECT_THROW(BpeTokenizer::parse(text.substr(0, size)), Error) << size;
  }
}

}  // namespace
}  // namespace flux2
