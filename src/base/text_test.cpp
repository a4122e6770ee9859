#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

TEST(Text, EditDistanceCountsLetters) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("steps", "stpes"), 2u);
}

TEST(Text, RanksWords) {
  EXPECT_THAT(nearest_words("KLIEN", {"dev", "klein", "klein-4b", "x"}, 2), testing::ElementsAre("klein", "dev"));
  EXPECT_THAT(nearest_words("a", {}, 3), testing::IsEmpty());
}

TEST(Text, NearestWordIsEmptyWhenNothingIsClose) {
  EXPECT_EQ(nearest_word("heigth", {"width", "height"}), "height");
  EXPECT_EQ(nearest_word("q", {"width", "height"}), "");
  EXPECT_EQ(nearest_word("a", {"vae", "b"}), "");
  EXPECT_EQ(nearest_word("foo", {"zoom", "show"}), "");
  EXPECT_EQ(nearest_word("sho", {"zoom", "show"}), "show");
  EXPECT_EQ(nearest_word("hlep", {"help"}), "help");
  EXPECT_EQ(nearest_word("image_dir", {"image_directory", "image_file"}), "image_directory");
  EXPECT_EQ(nearest_word("image", {"image_directory_of", "image_file_of_it"}), "") << "it begins both";
}

TEST(Text, PrintsBytesInBinaryUnits) {
  EXPECT_EQ(byte_text(17), "17 bytes");
  EXPECT_EQ(byte_text(312 * 1024), "312 KiB");
  EXPECT_EQ(byte_text(uint64_t{7750} << 20), "7.57 GiB");
}

TEST(Text, RecognisesValidUtf8) {
  for (const char* valid : {"", "a fox", "grün 狐 🦊", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_utf8(valid)) << valid;
  for (const char* invalid :
       {"\xff", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80", "\xf5\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(invalid));
}

TEST(Text, PrintableReplacesControlCharactersAndCutsLongNames) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a?[2Jb");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(120, 'x') + "…");
}

}  // namespace
}  // namespace flux2
