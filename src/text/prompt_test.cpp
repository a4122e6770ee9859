#include "text/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_tokenizer.h"

namespace flux2 {
namespace {

using testing::ElementsAreArray;

constexpr int kLength = 512;

// One I32 or I64 tensor of a safetensors file: this folder lies below the one that reads them.
std::vector<int32_t> integers(const std::string& file, const std::string& name) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const Json entry = parse_json(std::string_view(file).substr(8, header_size)).at(name);
  const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
  const size_t width = entry["dtype"] == "I64" ? 8 : 4;
  std::vector<int32_t> values((end - begin) / width);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], file.data() + 8 + header_size + begin + width * i, sizeof values[i]);  // little-endian
  }
  return values;
}

TEST(Prompt, RendersTheTemplate) {
  EXPECT_EQ(render_qwen_prompt("a cat"), "<|im_start|>user\na cat<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(Prompt, AgreesWithTheReferenceOnTheTinyVocabulary) {
  const std::filesystem::path golden = test::golden_folder();
  const Json prompts = read_json(golden / "text.json");
  const std::string tensors = read_text_file(golden / "text.safetensors");
  const BpeTokenizer tokenizer = tiny_tokenizer();
  ASSERT_EQ(prompts.size(), 4u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PromptTokens tokens = tokenize_prompt(tokenizer, prompts[i].get<std::string>(), kLength);
    EXPECT_THAT(tokens.ids, ElementsAreArray(integers(tensors, std::to_string(i) + ".input_ids")));
    EXPECT_THAT(tokens.mask, ElementsAreArray(integers(tensors, std::to_string(i) + ".attention_mask")));
    EXPECT_EQ(tokens.real, std::count(tokens.mask.begin(), tokens.mask.end(), 1));
    EXPECT_EQ(tokens.dropped, "");
  }
}

TEST(Prompt, KeepsTheFirstIdsAndSaysWhatItDropped) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  const std::string prompt = "a red cat on a blue house";
  const std::vector<int32_t> all = tokenizer.encode(render_qwen_prompt(prompt));
  const int end = static_cast<int>(all.size() - tokenizer.encode(render_qwen_prompt("")).size() +
                                   tokenizer.encode("<|im_start|>user\n").size());  // where the prompt ends
  for (int length = 1; length <= static_cast<int>(all.size()) + 2; ++length) {
    const PromptTokens tokens = tokenize_prompt(tokenizer, prompt, length);
    const int real = std::min<int>(length, all.size());
    ASSERT_EQ(tokens.real, real);
    ASSERT_EQ(tokens.ids.size(), static_cast<size_t>(length));
    ASSERT_EQ(tokens.mask.size(), static_cast<size_t>(length));
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + real, tokens.ids.begin()));
    EXPECT_TRUE(std::all_of(tokens.ids.begin() + real, tokens.ids.end(), [](int32_t id) { return id == 382; }));
    EXPECT_EQ(tokens.dropped.empty(), length >= end) << length;
    EXPECT_TRUE(prompt.ends_with(tokens.dropped)) << tokens.dropped;
  }
  EXPECT_EQ(tokenize_prompt(tokenizer, prompt, 1).dropped, prompt);
  EXPECT_EQ(tokenize_prompt(tokenizer, prompt, end - 1).dropped, tokenizer.decode(std::vector{all[end - 1]}));
}

TEST(Prompt, RejectsInvalidVocabularies) {
  EXPECT_THROW(tokenize_prompt(tiny_tokenizer(), "a", 0), Error);
  Json json = tiny_tokenizer_json();
  json["added_tokens"].erase(1);
  try {
    tokenize_prompt(BpeTokenizer::parse(json.dump()), "a", 8);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_STREQ(e.what(), "the tokenizer has no token <|im_start|>");
  }
}

class Qwen3Prompt : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("FLUX2_QWEN3_TOKENIZER");
    if (!folder) GTEST_SKIP() << "set FLUX2_QWEN3_TOKENIZER to the folder of Qwen3's tokenizer.json";
    tokenizer_.emplace(BpeTokenizer::load(folder));
  }

  void expect_ids(std::string_view prompt, const std::vector<int32_t>& expected) const {
    const PromptTokens tokens = tokenize_prompt(*tokenizer_, prompt, kLength);
    const auto pads = tokens.ids.begin() + tokens.real;
    EXPECT_THAT(std::vector(tokens.ids.begin(), pads), ElementsAreArray(expected)) << prompt;
    EXPECT_TRUE(std::all_of(pads, tokens.ids.end(), [](int32_t id) { return id == 151643; }));
  }

  std::optional<BpeTokenizer> tokenizer_;
};

TEST_F(Qwen3Prompt, AgreesWithTheReference) {
  for (const Json& c : read_json(test::golden_folder() / "tokenizer-qwen3-template.json")) {
    expect_ids(c["prompt"].get<std::string>(), c["ids"].get<std::vector<int32_t>>());
  }
}

TEST_F(Qwen3Prompt, KnownSequences) {
  const struct {
    std::string_view prompt;
    std::vector<int32_t> ids;
  } cases[] = {
      {"", {}},
      {"a cat", {64, 8251}},
      {"A cat holding a sign that says hello world", {32, 8251, 9963, 264, 1841, 429, 2727, 23811, 1879}},
      {"Hello, world! It's 2025.", {9707, 11, 1879, 0, 1084, 594, 220, 17, 15, 17, 20, 13}},
      {"It's a \"test\": foo_bar/baz (v2.0) — 50%!",
       {2132, 594, 264, 330, 1944, 788, 15229, 14388, 3470, 1370, 320, 85, 17, 13, 15, 8, 1959, 220, 20, 15, 89420}},
      {"Ein süßer Bär – 猫 🐱", {53750, 59739, 52662, 425, 13977, 1365, 10236, 234, 104, 11162, 238, 109}},
      {"don't DON'T we'Ll", {15007, 944, 44273, 17323, 582, 91426, 75}},
      {"FLUX.2 [klein]", {6126, 13401, 13, 17, 508, 23089, 258, 60}},
      {"1234567", {16, 17, 18, 19, 20, 21, 22}},
      {"e\u0301te\u0301", {38783}},
      {"a  b   c", {64, 220, 293, 256, 272}},
      {"x\r\ny", {87, 319, 88}},
      {"   ", {262}},
      {"  leading and   multiple spaces\n\n new\tline ", {220, 6388, 323, 256, 5248, 12621, 271, 501, 27109, 220}},
      {"日本語のテキスト", {101059, 102819, 15767, 56833, 61803, 70534}},
      {"<think>x</think>", {151667, 87, 151668}},
  };
  const std::vector<int32_t> suffix = {151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271};
  for (const auto& c : cases) {
    std::vector<int32_t> expected = {151644, 872, 198};
    expected.insert(expected.end(), c.ids.begin(), c.ids.end());
    expected.insert(expected.end(), suffix.begin(), suffix.end());
    expect_ids(c.prompt, expected);
  }
  // A newline in front of the prompt merges with the template's.
  expect_ids("\ncat", {151644, 872, 271, 4616, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271});
  expect_ids(" cat", {151644, 872, 198, 8251, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271});
}

TEST_F(Qwen3Prompt, TruncatesLongPrompts) {
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += " cat";
  const PromptTokens tokens = tokenize_prompt(*tokenizer_, prompt, kLength);
  EXPECT_EQ(tokens.real, kLength);
  EXPECT_EQ(tokens.ids.back(), 8251);
  EXPECT_EQ(tokens.dropped.size(), 4u * (600 - (kLength - 3)));
}

}  // namespace
}  // namespace flux2
