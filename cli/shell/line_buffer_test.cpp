#include "cli/shell/line_buffer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "cli/shell/line_history.h"

namespace flux2 {
namespace {

TEST(LineBuffer, EditsCharactersNotBytes) {
  LineBuffer line;
  line.insert("aé漢z");
  line.left();
  line.left();
  EXPECT_EQ(line.before_cursor(), "aé");
  line.erase_left();
  EXPECT_EQ(line.text(), "a漢z");
  line.erase_right();
  EXPECT_EQ(line.text(), "az");
  line.insert("–");
  EXPECT_EQ(line.text(), "a–z");
  line.home();
  line.left();
  line.erase_left();
  EXPECT_EQ(line.text(), "a–z");
  line.end();
  line.right();
  line.erase_right();
  EXPECT_EQ(line.text(), "a–z");
}

TEST(LineBuffer, MovesAndCutsWords) {
  LineBuffer line;
  line.set("a red  fox runs");
  line.word_left();
  line.word_left();
  EXPECT_EQ(line.before_cursor(), "a red  ");
  line.cut_word_left();
  EXPECT_EQ(line.text(), "a fox runs");
  line.word_right();
  EXPECT_EQ(line.before_cursor(), "a fox");
  line.paste();
  EXPECT_EQ(line.text(), "a foxred   runs");
  line.cut_to_end();
  EXPECT_EQ(line.text(), "a foxred  ");
  line.cut_to_start();
  EXPECT_EQ(line.text(), "");
  line.paste();
  EXPECT_EQ(line.text(), "a foxred  ");
  line.replace_before_cursor(2, "dog");
  EXPECT_EQ(line.text(), "a dog");
}

TEST(LineBuffer, ALongLineIsShownAroundItsCursor) {
  const std::string text = "0123456789abcdefghij";
  EXPECT_EQ(visible_part(text, 0, 8).text, "0123456");
  const LineView middle = visible_part(text, 12, 8);
  EXPECT_EQ(middle.text, "56789ab");
  EXPECT_EQ(middle.cursor, 7);
  EXPECT_EQ(visible_part(text, text.size(), 100).text, text);
  EXPECT_EQ(text_columns("aé漢字👍"), 8);
  EXPECT_EQ(visible_part("漢字漢字", 12, 6).text, "漢字");  // two columns each, one for the cursor
}

TEST(LineHistory, KeepsTheLastLinesInAFile) {
  std::string pattern = (std::filesystem::temp_directory_path() / "flux2-history-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  {
    LineHistory history(folder / "deep/history");
    for (int i = 0; i < 600; ++i) history.add("line " + std::to_string(i));
    history.add("line 599");
    history.add("");
  }
  const LineHistory again(folder / "deep/history");
  ASSERT_EQ(again.lines().size(), 500u);
  EXPECT_EQ(again.lines().front(), "line 100");
  EXPECT_EQ(again.lines().back(), "line 599");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flux2
