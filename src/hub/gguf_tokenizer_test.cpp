#include "hub/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/convert.h"
#include "hub/test_models.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using namespace testing_models;
using ::testing::HasSubstr;

const fs::path kTiny = test::golden_folder() / "tiny";

TEST(GgufTokenizer, GivesTheTokensOfTheFilesItWasMadeFrom) {
  const fs::path from = tokenizer_beside(kTiny / "text_encoder");
  ASSERT_FALSE(from.empty());
  const NamedWeights weights(open_weights(kTiny / "text_encoder"), ModelPart::TextEncoder);
  const int64_t vocabulary = weights.shape("model.embed_tokens.weight")[0];
  ConvertOptions o{.out = scratch_folder() / "qwen.gguf", .choice = {.layout = FileLayout::Gguf}};
  convert_model(weights, o);
  EXPECT_FALSE(holds_inner_tokenizer(o.out));
  o.choice.more_pairs = gguf_tokenizer_pairs(read_bpe_files(from), vocabulary);
  convert_model(weights, o);
  ASSERT_TRUE(holds_inner_tokenizer(o.out));
  EXPECT_EQ(tokenizer_beside(o.out), o.out);

  const BpeTokenizer before = BpeTokenizer::load(from), after = load_tokenizer(o.out);
  EXPECT_EQ(after.pad_id(), before.pad_id());
  for (const char* text :
       {"a red fox on the snow", "<|im_start|>user\nein Füchslein<|im_end|>\n<think>", "  two  spaces\t\n", "日本 🦊"})
    EXPECT_EQ(after.encode(text), before.encode(text)) << text;
  const std::vector<int32_t> ids = before.encode("the fox<|im_end|>");
  EXPECT_EQ(after.decode(ids, {.skip_special = true}), before.decode(ids, {.skip_special = true}));
}

TEST(GgufTokenizer, ReportsErrors) {
  const fs::path path = scratch_folder() / "x.gguf";
  const auto words = [&](std::vector<GgufPair> pairs) -> std::string {
    save_gguf(path, pairs, {});
    try {
      read_gguf_tokenizer(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const GgufPair model{"tokenizer.ggml.model", std::string("gpt2")};
  const GgufPair tokens{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}};
  EXPECT_THAT(words({{"tokenizer.ggml.model", std::string("llama")}, tokens}), HasSubstr("type llama"));
  EXPECT_THAT(words({model, tokens}), HasSubstr("no tokenizer.ggml.token_type"));
  EXPECT_THAT(words({model, tokens, {"tokenizer.ggml.token_type", std::vector<int32_t>{1}}}), HasSubstr("1 kinds for 2 tokens"));
  EXPECT_THAT(words({model,
                     tokens,
                     {"tokenizer.ggml.token_type", std::vector<int32_t>{1, 1}},
                     {"tokenizer.ggml.merges", std::vector<std::string>{"ab"}}}),
              HasSubstr("not a pair"));
}

}  // namespace
}  // namespace flux2
