#include "app/wildcards.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class WildcardFiles : public testing::Test {
 protected:
  WildcardFiles() {
    std::string pattern = (fs::temp_directory_path() / "flux2-wild-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~WildcardFiles() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  fs::path folder_;
};

std::map<std::string, int> counts(const std::string& prompt, int n = 3000) {
  Wildcards wildcards({});
  std::map<std::string, int> seen;
  for (int seed = 0; seed < n; ++seed) ++seen[wildcards.expand(prompt, static_cast<uint64_t>(seed))];
  return seen;
}

TEST(Wildcards, ChoosesByWeight) {
  const auto seen = counts("a {red|2::blue|0::green} fox");
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen.at("a red fox"), 1000, 120);
  EXPECT_NEAR(seen.at("a blue fox"), 2000, 120);
}

TEST(Wildcards, NestsAndMayBeEmpty) {
  const auto seen = counts("{a {big|small} dog|a cat|}");
  std::set<std::string> texts;
  for (const auto& [text, n] : seen) texts.insert(text);
  EXPECT_EQ(texts, (std::set<std::string>{"a big dog", "a small dog", "a cat", ""}));
  EXPECT_NEAR(seen.at("a cat"), 1000, 120);
  EXPECT_NEAR(seen.at("a big dog"), 500, 100);
}

TEST(Wildcards, TheSeedDecides) {
  Wildcards wildcards({});
  const std::string prompt = "{a|b|c|d} {e|f|g|h} {i|j|k|l}";
  EXPECT_EQ(wildcards.expand(prompt, 42), wildcards.expand(prompt, 42));
  EXPECT_EQ(counts(prompt, 2000).size(), 64u);
}

TEST(Wildcards, LeavesOtherBracesAlone) {
  for (const char* plain : {"", "a fox", "{no choice}", "{open | never closed", "closed } only", "a_b __ c", "__ __", "{}",
                            R"({"scene": "a {red|blue} fox", "colours": ["#ff0000"]})"}) {
    EXPECT_FALSE(Wildcards::used_in(plain)) << plain;
    EXPECT_EQ(Wildcards({}).expand(plain, 1), plain);
  }
  EXPECT_EQ(Wildcards({}).expand(R"(\{a\|b\} and \_\_x__)", 1), "{a|b} and __x__");
  EXPECT_EQ(Wildcards({}).expand("{{a|a}}", 1), "{a}");
  for (const char* used : {"{a|b}", "x __animal__", "{x {a|b}}", "__a/b-c_d__"}) EXPECT_TRUE(Wildcards::used_in(used)) << used;
}

TEST_F(WildcardFiles, TakeALineOfAFile) {
  write("animal.txt", "# comment\n\nfox\n  {red|red} panda  \r\n2::owl\n");
  write("deep/colour.txt", "green\n");
  Wildcards wildcards({folder_ / "elsewhere", folder_});
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 2000; ++seed) ++seen[wildcards.expand("a __animal__ on __deep/colour__", seed)];
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen["a red panda on green"], 500, 90);
  EXPECT_NEAR(seen["a owl on green"], 1000, 110);
}

TEST_F(WildcardFiles, ReportErrors) {
  const auto message = [&](const std::string& prompt) {
    try {
      Wildcards({folder_}).expand(prompt, 1);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("a __beast__"), HasSubstr("file beast.txt for __beast__ not found in " + folder_.string()));
  EXPECT_THAT(message("a __beast__"), HasSubstr("wildcards=off"));
  write("a.txt", "__b__\n");
  write("b.txt", "__a__ __a__\n");
  EXPECT_THAT(message("__a__"), HasSubstr("in a cycle"));
  for (char c = 'c'; c < 'y'; ++c) {
    const std::string next = fmt::format("__{}__", static_cast<char>(c + 1));
    write(std::string(1, c) + ".txt", next + next + next + "\n");
  }
  write("y.txt", "{|}\n");
  EXPECT_THAT(message("__c__"), HasSubstr("too long to expand")) << "3^22 empty texts";
  write("empty.txt", "# nothing\n");
  EXPECT_THAT(message("__empty__"), HasSubstr("contains no lines"));
  EXPECT_THAT(message("{0::a|0::b}"), HasSubstr("weights"));
  EXPECT_THAT(message(std::string(5000, '{') + "a|b" + std::string(5000, '}')), HasSubstr("no error"));
  EXPECT_EQ(Wildcards({folder_ / "deep"}).expand("__../a__", 1), "__../a__");  // no way out of the folder
}

}  // namespace
}  // namespace flux2
