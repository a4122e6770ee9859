#include "app/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "base/error.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LoraTags, LeaveThePromptClean) {
  const auto take = [](const std::string& prompt) {
    std::vector<std::string> found;
    return std::pair(without_lora_tags(prompt, found), found);
  };
  EXPECT_EQ(take("a fox").first, "a fox");
  EXPECT_EQ(take(" a fox  ").first, " a fox  ") << "spaces are tokens too";
  EXPECT_THAT(take("a fox").second, IsEmpty());
  EXPECT_EQ(take("a fox <lora:ink:0.7> in snow").first, "a fox in snow");
  EXPECT_THAT(take("a fox <lora:ink:0.7> in snow").second, ElementsAre("ink:0.7"));
  EXPECT_THAT(take("<lora:ink:0.7:!mlp> a fox").second, ElementsAre("ink:0.7:!mlp"));
  EXPECT_EQ(take("<lora:ink> a fox <lora:b-2:-1>").first, "a fox");
  EXPECT_THAT(take("<lora:ink> a fox <lora:b-2:-1>").second, ElementsAre("ink", "b-2:-1"));
  EXPECT_EQ(take("x < lora:y>").first, "x < lora:y>");
}

TEST(AdapterChoice, FilesAndStrengths) {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_adapter_choice_{}", ::getpid());
  fs::create_directories(folder / "models" / "loras");
  std::ofstream(folder / "a:1.safetensors") << "x";
  std::ofstream(folder / "models" / "loras" / "ink.safetensors") << "x";
  const std::string home = folder.string();
  AppContext run;
  run.environment = [&](const char* name) { return std::string_view(name) == "FLUX2_HOME" ? home.c_str() : nullptr; };
  const std::string file = (folder / "a:1.safetensors").string();
  EXPECT_EQ(adapter_choice(file, run).strength, 1.0);
  EXPECT_EQ(adapter_choice(file + ":0.25", run).strength, 0.25);
  EXPECT_EQ(adapter_choice(file + ":0.25", run).path, file);
  EXPECT_EQ(adapter_choice("ink:-1.5", run).path, folder / "models" / "loras" / "ink.safetensors");
  EXPECT_EQ(adapter_choice("ink:-1.5", run).strength, -1.5);
  EXPECT_EQ(adapter_choice("ink:0.5:single_blocks.(0|1)", run).layers, "single_blocks.(0|1)");
  EXPECT_EQ(adapter_choice("ink:0.5:(?:a|b)", run).layers, "(?:a|b)");
  EXPECT_EQ(adapter_choice("ink::!mlp", run).layers, "!mlp");
  EXPECT_EQ(adapter_choice("ink::!mlp", run).strength, 1.0);
  EXPECT_EQ(text_of(adapter_choice("ink:-1.5:mlp", run)), (folder / "models/loras/ink.safetensors").string() + ":-1.5:mlp");
  EXPECT_THROW(adapter_choice("ink:9", run), Error);
  EXPECT_THROW(adapter_choice("pencil", run), Error);
}

TEST(AdapterChoice, CombinesAdaptersOfOneImageAndOfAll) {
  const AppContext context;
  EXPECT_THAT(adapters_beside({"a:0.5", "b"}, {"c"}, context), ElementsAre("a:0.5", "b", "c"));
  EXPECT_THAT(adapters_beside({"a:0.5", "b"}, {"a:0.1"}, context), ElementsAre("b", "a:0.1"));
  EXPECT_THAT(adapters_beside({"a:0.5:mlp"}, {"a:0.1"}, context), ElementsAre("a:0.5:mlp", "a:0.1")) << "of other layers";
}

// A prompt of 200 kB that looks like a tag crashed std::regex.
TEST(LoraTags, TakeTimeInProportionToThePrompt) {
  std::vector<std::string> found;
  for (const char* repeated : {"a", "<lora:", "<lora:a:1", "<lora:a:1>", ":", "<"}) {
    std::string prompt = "<lora:";
    while (prompt.size() < (size_t{2} << 20)) prompt += repeated;
    const std::clock_t start = std::clock();  // of the processor: other programs do not count
    without_lora_tags(prompt, found);
    without_lora_tags(prompt + ">", found);
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 2) << repeated;
  }
}

TEST(LoraTags, AreNamesAndNeverPaths) {
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("flux2_adapter_names_{}", ::getpid());
  fs::create_directories(folder / "models" / "loras");
  std::ofstream(folder / "models" / "loras" / "ink.safetensors") << "x";
  std::ofstream(folder / "models" / "secret.safetensors") << "x";
  const std::string home = folder.string();
  AppContext run;
  run.environment = [&](const char* name) { return std::string_view(name) == "FLUX2_HOME" ? home.c_str() : nullptr; };
  const AdapterChoice ink = adapter_by_name("ink:0.5:mlp", "the prompt", run);
  EXPECT_EQ(ink.path, folder / "models/loras/ink.safetensors");
  EXPECT_EQ(ink.strength, 0.5);
  EXPECT_EQ(ink.layers, "mlp");
  EXPECT_EQ(adapter_by_name("ink:+1.5", "the prompt", run).strength, 1.5);
  for (const std::string& path : {std::string("/etc/passwd:1"), (folder / "models/loras/ink.safetensors").string(),
                                  std::string("../secret"), std::string(".."), std::string("loras/ink"), std::string("")}) {
    try {
      adapter_by_name(path, "the prompt", run);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument) << path;
      EXPECT_THAT(e.what(), testing::HasSubstr("is not the name of an adapter"));
      EXPECT_EQ(e.hint().suggestions, (std::vector{set_option("lora", "FILE:STRENGTH")}));
    }
  }
  // A file in the current folder is not an installed adapter.
  const fs::path before = fs::current_path();
  std::ofstream(folder / "local.safetensors") << "x";
  fs::current_path(folder);
  EXPECT_THROW(adapter_by_name("local.safetensors:1", "the prompt", run), Error);
  EXPECT_NO_THROW(adapter_choice("local.safetensors:1", run)) << "an option of the user may name files";
  fs::current_path(before);
}

}  // namespace
}  // namespace flux2
