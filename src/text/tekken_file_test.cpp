#include "text/tekken_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"
#include "text/bpe_tokenizer.h"
#include "text/prompt.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSpecials = 1000;

std::string base64_of(std::string_view text) { return base64_encode(std::as_bytes(std::span(text))); }

// 256 bytes and some words, the way Mistral writes them; ids are ranks behind 1000 special tokens.
Json small_tekken(const std::vector<std::string>& words = {"th", "he", "the", " the", "ca", "at", "cat", " c", "Ba", "aB"}) {
  Json json = {{"config",
                {{"pattern", kTekkenSplitPattern},
                 {"num_vocab_tokens", 2000},
                 {"default_vocab_size", kSpecials + 256 + static_cast<int64_t>(words.size())},
                 {"default_num_special_tokens", kSpecials},
                 {"version", "v3"}}},
               {"vocab", Json::array()}};
  for (int b = 0; b < 256; ++b)
    json["vocab"].push_back(
        {{"rank", b}, {"token_bytes", base64_of(std::string(1, static_cast<char>(b)))}, {"token_str", nullptr}});
  for (const std::string& word : words)
    json["vocab"].push_back({{"rank", json["vocab"].size()}, {"token_bytes", base64_of(word)}, {"token_str", word}});
  return json;
}

BpeTokenizer tokenizer_of(const Json& json) { return BpeTokenizer(parse_tekken(json.dump())); }

int32_t byte_id(char c) { return 1000 + static_cast<unsigned char>(c); }
int32_t word_id(int i) { return 1000 + 256 + i; }

TEST(Tekken, MergesTheLowestRankFirst) {
  const BpeTokenizer t = tokenizer_of(small_tekken());
  EXPECT_THAT(t.encode("the"), ElementsAre(word_id(2)));
  EXPECT_THAT(t.encode(" the"), ElementsAre(word_id(3)));
  // "th" merges before "he", so "the" is reached although "he" exists; " c" comes after "ca" and "cat".
  EXPECT_THAT(t.encode("thecat"), ElementsAre(word_id(2), word_id(6)));
  EXPECT_THAT(t.encode(" cat"), ElementsAre(byte_id(' '), word_id(6)));
  EXPECT_EQ(t.decode(t.encode("the cat ☃ the")), "the cat ☃ the");
  EXPECT_EQ(t.pad_id(), 11);
}

// A piece that is a token is taken whole, even if merging does not lead there.
TEST(Tekken, AWholeWordIsNotMerged) {
  const BpeTokenizer t = tokenizer_of(small_tekken({"bc", "abcd"}));  // abcd = a + bcd = ab + cd: neither half exists
  EXPECT_THAT(t.encode("abcd"), ElementsAre(word_id(1)));
  EXPECT_THAT(t.encode("abcde"), ElementsAre(byte_id('a'), word_id(0), byte_id('d'), byte_id('e')));
}

TEST(Tekken, SplitsByThePatternOfItsFile) {
  EXPECT_THAT(tokenizer_of(small_tekken()).encode("BaB"), ElementsAre(word_id(8), byte_id('B')));  // "Ba" | "B"
  Json json = small_tekken();
  json["config"]["pattern"] = kMistralSplitPattern;
  EXPECT_THAT(tokenizer_of(json).encode("aB"), ElementsAre(word_id(9)));  // letters of both cases stay together
  json["config"]["pattern"] = "\\s+";
  EXPECT_THROW(parse_tekken(json.dump()), Error);
}

TEST(Tekken, SpecialTokensTakeTheFirstIds) {
  const BpeTokenizer t = tokenizer_of(small_tekken());
  EXPECT_THAT(t.encode("[INST]the[/INST]"), ElementsAre(3, word_id(2), 4));
  EXPECT_EQ(t.id_of("[SYSTEM_PROMPT]"), 17);
  EXPECT_EQ(t.id_of("<SPECIAL_999>"), 999);
  Json json = small_tekken();
  json["special_tokens"] = {{{"rank", 11}, {"token_str", "<pad>"}, {"is_control", true}},
                            {{"rank", 40}, {"token_str", "[MORE]"}, {"is_control", true}}};
  EXPECT_EQ(tokenizer_of(json).id_of("[MORE]"), 40);
  json["special_tokens"][1]["rank"] = 1000;
  EXPECT_THROW(parse_tekken(json.dump()), Error);
}

TEST(Tekken, RefusesDamagedFiles) {
  const auto refusal = [](const Json& json) -> std::string {
    try {
      tokenizer_of(json);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Json json = small_tekken();
  json["vocab"][257]["token_bytes"] = "!!";
  EXPECT_THAT(refusal(json), HasSubstr("rank 257"));
  json = small_tekken();
  json["vocab"].erase(json["vocab"].begin() + 5);
  EXPECT_THAT(refusal(json), HasSubstr("byte 0x05"));
  json = small_tekken();
  json["config"]["default_num_special_tokens"] = 5000;
  EXPECT_THAT(refusal(json), HasSubstr("5000 special tokens"));
  EXPECT_THAT(refusal(Json::array()), HasSubstr("pattern"));
}

TEST(Tekken, PromptsStandBehindTheirPadding) {
  BpeTokenizer t = tokenizer_of(small_tekken());
  t.set_system_message("he");
  ASSERT_EQ(prompt_format(t), PromptFormat::Mistral);
  const PromptTokens tokens = tokenize_prompt(t, "the[IMG] cat", 12);
  EXPECT_EQ(tokens.real, 9);
  EXPECT_EQ(tokens.first(), 3);
  EXPECT_EQ(tokens.shared, 5);
  EXPECT_THAT(tokens.ids, ElementsAre(11, 11, 11, 1, 17, word_id(1), 18, 3, word_id(2), byte_id(' '), word_id(6), 4));
  EXPECT_THAT(tokens.mask, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(tokens.dropped, "");

  const PromptTokens cut = tokenize_prompt(t, "the cat", 7);
  EXPECT_THAT(cut.ids, ElementsAre(1, 17, word_id(1), 18, 3, word_id(2), byte_id(' ')));
  EXPECT_EQ(cut.dropped, "cat");
  EXPECT_EQ(cut.first(), 0);
}

// FLUX.2-dev's system message is known by its tokens in the published vocabulary only.
TEST(Tekken, AnotherVocabularyNeedsItsOwnSystemMessage) {
  const BpeTokenizer t = tokenizer_of(small_tekken());
  try {
    tokenize_prompt(t, "the cat", 12);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_THAT(e.what(), HasSubstr("another vocabulary"));
  }
}

}  // namespace
}  // namespace flux2
