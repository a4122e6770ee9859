#include "app/output_name.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class OutputName : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "flux2-output-name-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    fields_ = {.seed = 42,
               .index = 0,
               .date = "2026-01-02",
               .time = "030405",
               .model = "flux.2-klein-4b",
               .prompt = "a red fox, \"running\"",
               .job = "j1",
               .width = 64,
               .height = 96,
               .steps = 4,
               .extension = "png"};
  }
  void TearDown() override { fs::remove_all(folder_); }

  void touch(const std::string& name) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "x";
  }
  std::string chosen(const std::string& target, bool several = false) const {
    return choose_output((folder_ / target).string(), fields_, several).lexically_relative(folder_).string();
  }

  fs::path folder_;
  OutputFields fields_;
};

TEST_F(OutputName, FileNameIsUsedUnchanged) {
  touch("x.png");
  EXPECT_EQ(chosen("x.png"), "x.png");
  EXPECT_EQ(chosen("x.png", true), "x-01.png");
  fields_.index = 11;
  EXPECT_EQ(chosen("x.png", true), "x-12.png");
  EXPECT_EQ(choose_output("plain.png", fields_, false), "plain.png");
}

TEST_F(OutputName, AFolderGetsNumberedFiles) {
  EXPECT_EQ(chosen("new/"), "new/00001-42.png");
  touch("new/00007-13.jpg");
  touch("new/2026-01-02/x.png");  // a folder whose name begins with a number
  EXPECT_EQ(chosen("new"), "new/00008-42.png");
  EXPECT_EQ(choose_output("", fields_, false).parent_path(), "outputs/2026-01-02");
}

TEST_F(OutputName, TokensAreFilledIn) {
  EXPECT_EQ(chosen("{model}_{width}x{height}_{steps}_{index}_{time}_{job}.{ext}"), "flux_2-klein-4b_64x96_4_0_030405_j1.png");
  EXPECT_EQ(chosen("{prompt}.png"), "a_red_fox_running.png");
  EXPECT_EQ(chosen("{prompt:5}.png"), "a_red.png");
  fields_.prompt = "../../etc/passwd";
  EXPECT_EQ(chosen("{prompt}.png"), "etc_passwd.png");
  fields_.prompt = "Füchse";
  EXPECT_EQ(chosen("{prompt:2}.png"), "Fü.png");
  EXPECT_THROW(chosen("{sede}.png"), Error);
  EXPECT_THROW(chosen("{seq:x}.png"), Error);
}

TEST_F(OutputName, NumbersCountUpAndPrintfFormsAreUnderstood) {
  EXPECT_EQ(chosen("p%03d.png"), "p001.png");
  touch("p041.png");
  touch("p7-other.png");
  EXPECT_EQ(chosen("p%03d.png"), "p042.png");
  EXPECT_EQ(chosen("p{seq}.png"), "p42.png");
  touch("run3/x.png");
  EXPECT_EQ(chosen("run{seq}/{seed}.png"), "run4/42.png");
}

TEST_F(OutputName, PatternsNeverNameAFileThatExists) {
  touch("42.png");
  EXPECT_EQ(chosen("{seed}.png"), "42-2.png");
  touch("42-2.png");
  EXPECT_EQ(chosen("{seed}.png"), "42-3.png");
}

TEST(OutputPattern, IsRecognised) {
  EXPECT_TRUE(is_output_pattern("{seed}.png"));
  EXPECT_TRUE(is_output_pattern("a%05d.png"));
  EXPECT_FALSE(is_output_pattern("100%.png"));
  EXPECT_FALSE(is_output_pattern("plain.png"));
}

}  // namespace
}  // namespace flux2
