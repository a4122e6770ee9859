#include "text/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_tokenizer.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

TEST(BpeTokenizer, KnowsItsTokens) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 387);
  EXPECT_EQ(tokenizer.pad_id(), 382);
  EXPECT_EQ(tokenizer.id_of("<|im_start|>"), 383);
  EXPECT_EQ(tokenizer.id_of("nothing"), std::nullopt);
  EXPECT_THAT(tokenizer.encode(" "), ElementsAre(*tokenizer.id_of("Ġ")));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
}

TEST(BpeTokenizer, FindsAddedTokensLeftmostAndLongest) {
  Json json = tiny_tokenizer_json();
  for (const auto& [content, id] : {std::pair("<|im", 400), {"im_start|>!", 401}, {"né", 402}}) {
    json["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", true}});
  }
  const BpeTokenizer tokenizer = BpeTokenizer::parse(json.dump());
  EXPECT_THAT(tokenizer.encode("<|im_start|>!"), ElementsAre(383, *tokenizer.id_of("!")));
  EXPECT_THAT(tokenizer.encode("<|im"), ElementsAre(400));
  EXPECT_THAT(tokenizer.encode("xim_start|>!"), ElementsAre(*tokenizer.id_of("x"), 401));
  EXPECT_THAT(tokenizer.encode("né"), ElementsAre(402));
  // Matching sees the text before normalization, so the decomposed letter is not that token.
  EXPECT_NE(tokenizer.encode("ne\u0301"), std::vector<int32_t>{402});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<|imné")), "<|imné");
}

TEST(BpeTokenizer, DecodesWhatItEncoded) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  for (const char* text :
       {"", "a red cat", "naïve café — 漢字 🦊 don't STOP 123", "\t\r\n \u3000<think>\x01", "<|im_end|>"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<|im_start|>a<think>b"), {.skip_special = true}), "a<think>b");
  std::vector<int32_t> fox = tokenizer.encode("🦊");
  fox.pop_back();
  EXPECT_EQ(tokenizer.decode(fox), "\uFFFD");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{-1, 386, 387, 1 << 30}), "</think>");
}

TEST(BpeTokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.encode("a \xff\xe6\xbc cat"), tokenizer.encode("a \uFFFD\uFFFD cat"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\xf0\x9f<think>")), "\uFFFD<think>");
}

TEST(BpeTokenizer, NormalizesToComposedForm) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.encode("cafe\u0301"), tokenizer.encode("café"));
}

// Qwen3's own files are too large to keep here: FLUX2_QWEN3_TOKENIZER names the folder that holds them.
TEST(BpeTokenizer, AgreesWithTheReferenceOnQwen3) {
  const char* folder = std::getenv("FLUX2_QWEN3_TOKENIZER");
  if (!folder) GTEST_SKIP() << "set FLUX2_QWEN3_TOKENIZER to the folder of Qwen3's tokenizer.json";
  const BpeTokenizer tokenizer = BpeTokenizer::load(folder);
  EXPECT_EQ(tokenizer.pad_id(), 151643);
  EXPECT_EQ(tokenizer.vocab_size(), 151669);
  const Json cases = read_json(test::golden_folder() / "tokenizer-qwen3.json");
  ASSERT_EQ(cases.size(), 225u);
  for (const Json& c : cases) {
    const auto text = c["text"].get<std::string>();
    EXPECT_THAT(tokenizer.encode(text), ElementsAreArray(c["ids"].get<std::vector<int32_t>>())) << text;
  }
}

}  // namespace
}  // namespace flux2
