#include "text/text_stream.h"

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "text/qwen_chat.h"

namespace flux2 {
namespace {

TEST(TextStream, ShowsWholeCharactersAlone) {
  const BpeTokenizer tokenizer = BpeTokenizer::load(test::golden_folder() / "tiny" / "tokenizer");
  const std::string text = "a f\u00f6x \U0001f98a \u65e5\u672c, na\u00efve!";
  TextStream stream(tokenizer);
  std::string shown;
  bool held_back = false;
  for (const int32_t id : tokenizer.encode(text)) {
    const std::string fresh = stream.add(id);
    EXPECT_EQ(fresh.find("\ufffd"), std::string::npos);
    held_back = held_back || fresh.empty();
    shown += fresh;
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(stream.text(), text);
  EXPECT_TRUE(held_back) << "this vocabulary has no token for a fox";
}

TEST(TextStream, SpecialTokensAreNoText) {
  const BpeTokenizer tokenizer = BpeTokenizer::load(test::golden_folder() / "tiny" / "tokenizer");
  TextStream stream(tokenizer);
  const auto end = tokenizer.id_of("<|im_end|>");
  ASSERT_TRUE(end);
  EXPECT_EQ(stream.add(*end), "");
  EXPECT_EQ(stream.text(), "");
}

TEST(QwenChat, HasASystemTurnAndNoThinking) {
  EXPECT_EQ(render_qwen_chat("S", "U"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  const BpeTokenizer tokenizer = BpeTokenizer::load(test::golden_folder() / "tiny" / "tokenizer");
  const ChatTokens tokens = qwen_chat_tokens(tokenizer, "S", "U");
  EXPECT_EQ(tokenizer.decode(tokens.ids), render_qwen_chat("S", "U"));
  EXPECT_EQ(tokens.stop.at(0), tokenizer.id_of("<|im_end|>"));
}

}  // namespace
}  // namespace flux2
