// Help, completions and manual pages as a user meets them: completions in real shells, pages through real man tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <set>
#include <sstream>

#include "cli/topics.h"
#include "hub/registry/registry.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

bool has_tool(const std::string& name) {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return true;
  return false;
}

class Help : public Cli {
 protected:
  // What bash would offer at the end of `line`.
  std::vector<std::string> completed(const std::string& line) {
    if (!exists("completions.bash")) write("completions.bash", flux2({"completions", "bash"}).out);
    // Bash splits the line as readline does: at blanks, and at = and :, which become words of their own.
    write("complete.sh",
          "source completions.bash\n"
          "COMP_LINE=$1 COMP_POINT=${#1}\n"
          "mapfile -t COMP_WORDS < <(grep -oE '[:=]+|[^[:space:]:=]+' <<<\"$1\")\n"
          "[[ $1 == *' ' ]] && COMP_WORDS+=('')\n"
          "COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))\n"
          "COMP_WORDS[0]=" +
              program() +
              "\n"
              "compopt() { :; }\n"
              "_flux2\n"
              "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
    Start s = start({});
    s.arguments = {"/usr/bin/env", "bash", "--norc", "complete.sh", line};
    const Finished done = run(s);
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(done.err, "");
    std::vector<std::string> found;
    std::istringstream lines(done.out);
    for (std::string each; std::getline(lines, each);)
      if (!each.empty()) found.push_back(each);
    return found;
  }

  Finished tool(std::vector<std::string> words) {
    Start s = start({});
    words.insert(words.begin(), "/usr/bin/env");
    s.arguments = std::move(words);
    return run(s);
  }
};

TEST_F(Help, TopicsAndDetail) {
  EXPECT_THAT(flux2({"help", "environment"}).out, HasSubstr("FLUX2_STEPS"));
  EXPECT_THAT(flux2({"help", "exit-codes"}).out, HasSubstr("128+N"));
  EXPECT_THAT(flux2({"help", "config"}).out, HasSubstr("generate.steps"));
  EXPECT_THAT(flux2({"help", "generate"}).out, Not(HasSubstr("--time-rounding")));
  EXPECT_THAT(flux2({"help", "generate", "--help-all"}).out, HasSubstr("--time-rounding"));
  EXPECT_EQ(flux2({"help", "generate", "--help-all"}).out, flux2({"generate", "--help-all"}).out);
  EXPECT_EQ(flux2({"--help-all"}).out, flux2({"help", "--help-all"}).out);
  EXPECT_THAT(flux2({"pull", "flux.2-klein-4b"}).err, HasSubstr("`flux2 models install flux.2-klein-4b`"));
  EXPECT_THAT(flux2({"list"}).err, HasSubstr("`flux2 models list`"));
  EXPECT_THAT(flux2({"run", "pico", "a fox"}).err, HasSubstr("`flux2 generate -m pico \"a fox\"`"));
  EXPECT_EQ(flux2({"pull", "x"}).status, 2);
}

// Every variable that the sources read by name is documented.
TEST_F(Help, UnknownActionsAreRefused) {
  const Finished action = flux2({"help", "models", "instal"});
  EXPECT_EQ(action.status, 2);
  EXPECT_THAT(action.err, HasSubstr("unknown action \"instal\" of models"));
  EXPECT_EQ(flux2({"help", "generate", "more"}).status, 2);
  EXPECT_EQ(flux2({"help", "models", "install", "more"}).status, 2);
}

TEST_F(Help, EnvironmentTopicIsComplete) {
  const std::string text = find_topic("environment")->text();
  const std::regex variable("\"([A-Z][A-Z0-9]+(_[A-Z0-9]+)+)\"");
  // Passed from a process to those that it starts; for tests alone.
  const std::set<std::string> none = {"FLUX2_RANK_TOKEN", "FLUX2_LEASE_MS"};
  for (const char* folder : {"src/app", "src/hub/remote", "src/net", "src/image", "src/train/ranks", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(source_folder() / folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".cpp") || name.ends_with("_test.cpp")) continue;
      const std::string source = read_text_file(entry.path());
      for (std::sregex_iterator at(source.begin(), source.end(), variable), end; at != end; ++at) {
        const std::string found = (*at)[1];
        EXPECT_TRUE(none.contains(found) || text.find(found) != text.npos) << found;
      }
    }
}

TEST_F(Help, BashCompletes) {
  EXPECT_THAT(completed("flux2 gen"), UnorderedElementsAre("generate"));
  EXPECT_THAT(completed("flux2 models ins"), UnorderedElementsAre("install"));
  EXPECT_THAT(completed("flux2 generate --samp"), UnorderedElementsAre("--sampler"));
  EXPECT_THAT(completed("flux2 generate --sampler "), UnorderedElementsAre("euler", "heun", "dpmpp2m"));
  EXPECT_THAT(completed("flux2 generate --sampler=he"), UnorderedElementsAre("heun"));
  EXPECT_THAT(completed("flux2 generate \"a red fox\" --quant q"), UnorderedElementsAre("q8_0", "q4_0"));
  EXPECT_THAT(completed("flux2 convert x.safetensors --quant q8"), UnorderedElementsAre("q8_0"));
  EXPECT_THAT(completed("flux2 generate --device c"), Contains("cuda"));
  EXPECT_THAT(completed("flux2 generate --size 16:"), UnorderedElementsAre("9"));  // bash keeps what is before the colon
  EXPECT_THAT(completed("flux2 generate --size=4"), UnorderedElementsAre("4:3"));
  EXPECT_THAT(completed("flux2 help exit"), UnorderedElementsAre("exit-codes"));
  EXPECT_THAT(completed("flux2 config set generate.st"), Contains("generate.steps"));
  EXPECT_THAT(completed("flux2 models list --ty"), UnorderedElementsAre("--type"));
  EXPECT_THAT(completed("flux2 models list --type te"), UnorderedElementsAre("text_encoder"));
  EXPECT_THAT(completed("flux2 txt2img --samp"), UnorderedElementsAre("--sampler"));
  EXPECT_THAT(completed("flux2 generate --steps "), IsEmpty());
}

TEST_F(Help, BashCompletesFilesAndModels) {
  write("photo one.png", "");
  write("photo2.png", "");
  EXPECT_THAT(completed("flux2 edit -i phot"), UnorderedElementsAre("photo one.png", "photo2.png"));
  EXPECT_THAT(completed("flux2 inspect photo2"), UnorderedElementsAre("photo2.png"));
  EXPECT_THAT(completed("flux2 generate -m flux.2-klein-4"), UnorderedElementsAre("flux.2-klein-4b"));
  EXPECT_THAT(completed("flux2 generate -m pi"), UnorderedElementsAre("pico"));  // the bundled one
}

// A name may come from a downloaded model.
TEST_F(Help, BashDoesNotRunTheNamesOfModels) {
  if (!registry_available()) GTEST_SKIP() << "this build has no registry";
  const std::string command = "$(touch${IFS}made)";
  ASSERT_EQ(flux2({"models", "install", pico("ae.safetensors"), "--in-place", "--name", command}).status, 0);
  EXPECT_THAT(completed("flux2 models info $"), UnorderedElementsAre(command));
  ASSERT_EQ(flux2({"models", "edit", command, "--name", "Bob's autoencoder"}).status, 0);
  EXPECT_THAT(completed("flux2 models info Bo"), UnorderedElementsAre("Bob's autoencoder"));
  EXPECT_FALSE(exists("made"));
}

TEST_F(Help, ZshAndFishScriptsAreValid) {
  write("_flux2", flux2({"completions", "zsh"}).out);
  write("flux2.fish", flux2({"completions", "fish"}).out);
  EXPECT_EQ(flux2({"completions", "tcsh"}).status, 2);
  if (!has_tool("zsh") && !has_tool("fish")) GTEST_SKIP() << "neither zsh nor fish is here";
  if (has_tool("zsh")) {
    const Finished zsh = tool({"zsh", "-n", "_flux2"});
    EXPECT_EQ(zsh.status, 0) << zsh.err;
  }
  if (has_tool("fish")) {
    const Finished fish = tool({"fish", "--no-config", "-c", "source flux2.fish; complete -C 'flux2 generate --sampler '"});
    EXPECT_EQ(fish.status, 0) << fish.err;
    EXPECT_THAT(fish.out, HasSubstr("dpmpp2m"));
    EXPECT_THAT(tool({"fish", "--no-config", "-c", "source flux2.fish; complete -C 'flux2 models ins'"}).out,
                HasSubstr("install"));
  }
}

TEST_F(Help, ManualPagesAreValid) {
  EXPECT_EQ(flux2({"man", "--out", "man1"}).status, 0);
  EXPECT_TRUE(exists("man1/flux2.1"));
  EXPECT_TRUE(exists("man1/flux2-models-install.1"));
  EXPECT_EQ(flux2({"man", "generate"}).out, bytes("man1/flux2-generate.1"));
  EXPECT_EQ(flux2({"man", "models", "install"}).out, bytes("man1/flux2-models-install.1"));
  EXPECT_EQ(flux2({"man", "nonsense"}).status, 2);
  if (!has_tool("groff")) GTEST_SKIP() << "there is no groff";
  for (const auto& entry : fs::directory_iterator(folder_ / "man1")) {
    const Finished page = tool({"groff", "-man", "-ww", "-Kutf8", "-Tutf8", entry.path().string()});
    EXPECT_EQ(page.status, 0) << entry.path();
    EXPECT_EQ(page.err, "") << entry.path();
  }
  const std::string text = tool({"groff", "-man", "-Tascii", "-P-cbou", "man1/flux2-generate.1"}).out;
  EXPECT_THAT(text, HasSubstr("--time-rounding NAME"));
  EXPECT_THAT(text, HasSubstr("EXAMPLES"));
}

}  // namespace
}  // namespace flux2::test
