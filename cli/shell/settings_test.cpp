#include "cli/shell/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cli/shell/completion.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kReadme = test::source_folder() / "README.md";  // a file that is there

struct Session {
  ShellSettings settings;
  std::vector<std::string> missing;
  void set(const std::string& key, const std::string& value) {
    settings.replace(ShellSettings::changed(
        settings.layer(), key, value, [](const std::string& word) { return word == "$1" ? kReadme : "nowhere.png"; }, missing));
  }
};

TEST(ShellSettings, KeysStandForOptions) {
  Session session;
  session.set("num_steps", "8");
  session.set("size", "768x512");
  session.set("match_image_size", "0");
  session.set("show_steps", "on");
  EXPECT_EQ(session.settings.text("steps"), "8");
  EXPECT_EQ(session.settings.text("width"), "768");
  EXPECT_EQ(session.settings.text("height"), "512");
  EXPECT_EQ(session.settings.text("match"), "1");
  EXPECT_EQ(session.settings.text("show-steps"), "on");
  session.set("lora", "ink:0.5,b.safetensors");
  EXPECT_THAT(session.settings.layer().at("lora").values, ElementsAre("ink:0.5", "b.safetensors"));
  session.set("size", "none");
  session.set("steps", "");
  EXPECT_EQ(session.settings.text("width") + session.settings.text("steps"), "");
  for (const char* key : {"prompt",     "negative", "seed",    "width",   "height",       "size",   "num_steps",
                          "steps",      "guidance", "cfg",     "batch",   "input_images", "inputs", "match_image_size",
                          "match",      "schedule", "noise",   "profile", "output",       "format", "show",
                          "show_steps", "zoom",     "autorun", "model"})
    EXPECT_NO_THROW(ShellSettings::option_of(key)) << key;
}

TEST(ShellSettings, UnknownKeysNameTheNearest) {
  try {
    ShellSettings::option_of("stepps");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.hint().plain(), HasSubstr("steps"));
  }
  EXPECT_THROW(ShellSettings::option_of("prompt_file"), Error);
}

TEST(ShellSettings, MissingPicturesAreNamedAndTheOthersKept) {
  Session session;
  session.set("inputs", "$1,lost.png " + kReadme);
  EXPECT_EQ(session.settings.text("input"), kReadme + "," + kReadme);
  EXPECT_THAT(session.missing, ElementsAre("lost.png"));
  session.set("input_images", "lost.png");
  EXPECT_EQ(session.settings.text("input"), "");
}

TEST(ShellSettings, ChangesCanBeUndone) {
  Session session;
  session.set("steps", "8");
  session.set("steps", "4");
  EXPECT_TRUE(session.settings.undo());
  EXPECT_EQ(session.settings.text("steps"), "8");
  EXPECT_TRUE(session.settings.undo());
  EXPECT_EQ(session.settings.text("steps"), "");
  EXPECT_FALSE(session.settings.undo());
}

TEST(ShellCompletion, CompletesByContext) {
  const std::vector<std::string> commands = {"save", "show", "set", "load", "model"};
  const auto complete = [&](const std::string& line) { return complete_shell_line(line, commands, 12); };
  EXPECT_THAT(complete("sh").candidates, ElementsAre("shift=", "show", "show=", "show_steps="));
  EXPECT_THAT(complete("!sh").candidates, ElementsAre("!show"));
  EXPECT_THAT(complete("steps=4 sch").candidates, ElementsAre("schedule="));
  EXPECT_THAT(complete("profile=e").candidates, ElementsAre("exact"));
  EXPECT_EQ(complete("profile=e").start, 8u);
  EXPECT_THAT(complete("$1").candidates, ElementsAre("$1", "$10", "$11", "$12"));
  EXPECT_THAT(complete("inputs=$2,$3").candidates, ElementsAre("$3"));
  EXPECT_THAT(complete("model flux.2-klein-base").candidates, ElementsAre("flux.2-klein-base-4b", "flux.2-klein-base-9b"));
  EXPECT_TRUE(complete("a prompt wi").candidates.empty());

  std::string pattern = (std::filesystem::temp_directory_path() / "flux2-complete-XXXXXX").string();
  const std::string folder = ::mkdtemp(pattern.data());
  std::filesystem::create_directories(folder + "/cats");
  std::ofstream(folder + "/car.png") << "x";
  EXPECT_THAT(complete("load " + folder + "/ca").candidates, ElementsAre(folder + "/car.png", folder + "/cats/"));
  EXPECT_THAT(complete("inputs=x.png," + folder + "/car").candidates, ElementsAre(folder + "/car.png"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flux2
