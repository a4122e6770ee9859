#include "app/model_knowledge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace flux2 {
namespace {

using testing::HasSubstr;

const ModelKnowledge kKnown{{"a", "background", "blue", "circle", "dog", "red", "star"}, {{128, 128}, {192, 128}}};

TEST(ModelKnowledge, UnknownWordsGetTheNearestOnes) {
  EXPECT_EQ(unknown_words_notice(kKnown, "pico", "A red circle."), "");
  EXPECT_EQ(unknown_words_notice({}, "klein", "a dragon"), "");
  const std::string notice = unknown_words_notice(kKnown, "pico", "a red circel and a Star on blue");
  EXPECT_THAT(notice, HasSubstr("pico was not trained on the words \"circel\" (nearest: circle"));
  EXPECT_THAT(notice, HasSubstr("\"and\""));
  EXPECT_THAT(notice, HasSubstr("\"on\""));
  EXPECT_THAT(unknown_words_notice(kKnown, "pico", "one two three four five"), HasSubstr("and 2 more"));
  EXPECT_THAT(unknown_words_notice(kKnown, "pico", "dragon dragon"), HasSubstr("the word \"dragon\""));
}

TEST(ModelKnowledge, OtherSizesAreNamed) {
  EXPECT_EQ(unknown_size_notice(kKnown, "pico", 192, 128), "");
  EXPECT_EQ(unknown_size_notice({}, "klein", 512, 512), "");
  EXPECT_EQ(unknown_size_notice(kKnown, "pico", 512, 512),
            "pico was not trained on images of 512x512; it knows 128x128, 192x128");
}

TEST(ModelKnowledge, IsReadFromTheFolder) {
  std::string pattern = (std::filesystem::temp_directory_path() / "flux2-knowledge-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  std::filesystem::create_directories(folder / "tokenizer");
  std::ofstream(folder / "tokenizer/words.txt") << "star\nred\n\n";
  std::ofstream(folder / "model_index.json") << R"({"flux2": {"sizes": [[128, 128], "x", [256, 256]]}})";
  ModelFiles files;
  files.tokenizer = folder / "tokenizer";
  files.transformer = folder / "flux-2-pico.safetensors";
  const ModelKnowledge known = knowledge_of(files);
  EXPECT_THAT(known.words, testing::ElementsAre("red", "star"));
  EXPECT_THAT(known.sizes, testing::ElementsAre(std::pair(128, 128), std::pair(256, 256)));
  std::ofstream(folder / "model_index.json") << "no json";
  EXPECT_TRUE(knowledge_of(files).sizes.empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flux2
