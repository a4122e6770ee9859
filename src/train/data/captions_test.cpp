#include "train/data/captions.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "train/data/test_data.h"

namespace flux2 {
namespace {

using Texts = std::vector<std::string>;

TEST(Captions, PlainCaptionIsUnchanged) { EXPECT_EQ(caption_texts({}, "a fox, {trigger}"), Texts{"a fox, {trigger}"}); }

TEST(Captions, PrefixAndSuffixAreJoinedByASpace) {
  DatasetConfig config;
  config.caption_prefix = "photo of";
  config.caption_suffix = ", film grain";
  EXPECT_EQ(caption_texts(config, "a fox"), Texts{"photo of a fox, film grain"});
  config.caption_prefix = "photo of ";
  config.caption_suffix = "";
  EXPECT_EQ(caption_texts(config, "a fox"), Texts{"photo of a fox"});
}

TEST(Captions, TriggerWordReplacesItsMarkOrComesFirst) {
  DatasetConfig config;
  config.trigger_word = "zkx";
  EXPECT_EQ(caption_texts(config, "a {trigger} and a {trigger}"), Texts{"a zkx and a zkx"});
  EXPECT_EQ(caption_texts(config, "a fox"), Texts{"zkx, a fox"});
  EXPECT_EQ(caption_texts(config, ""), Texts{"zkx"});
}

TEST(Captions, ShuffledTagsKeepTheFirstOnes) {
  DatasetConfig config;
  config.shuffle_tags = true;
  config.keep_tags = 1;
  const Texts texts = caption_texts(config, "fox,  snow,tree , sky, river", 8);
  ASSERT_EQ(texts.size(), 8u);
  EXPECT_EQ(texts[0], "fox, snow, tree, sky, river");
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 8u);
  for (const std::string& text : texts) {
    EXPECT_TRUE(text.starts_with("fox, ")) << text;
    EXPECT_EQ(text.size(), texts[0].size());
  }
  EXPECT_EQ(caption_texts(config, "fox,  snow,tree , sky, river", 8), texts);  // the same each time
}

TEST(Captions, FewTagsHaveFewOrders) {
  DatasetConfig config;
  config.shuffle_tags = true;
  EXPECT_EQ(caption_texts(config, "a fox"), Texts{"a fox"});
  EXPECT_EQ(caption_texts(config, "fox, snow").size(), 2u);
  EXPECT_EQ(caption_texts(config, "a, b, c, d, e, f", 1).size(), 1u);
}

TEST(Captions, FilesAreTrimmedTexts) {
  const test::DataFolder folder;
  folder.text("a.txt", "\xef\xbb\xbf  a fox\r\nin the snow \n\n");
  EXPECT_EQ(caption_of_file(folder / "a.txt"), "a fox\nin the snow");
  folder.text("b.txt", "caf\xe9");
  EXPECT_THAT(test::message_of([&] { caption_of_file(folder / "b.txt"); }), testing::HasSubstr("is not a text in UTF-8"));
}

}  // namespace
}  // namespace flux2
