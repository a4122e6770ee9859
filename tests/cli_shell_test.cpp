// The shell, driven through a pseudo-terminal as a person would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "image/read_image.h"
#include "tests/support/program.h"
#include "tests/support/pseudo_terminal.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliShell : public Cli {
 protected:
  Start shell(std::vector<std::string> words = {}) const {
    words.insert(words.begin(), "shell");
    Start s = start(std::move(words));
    s.environment["LANG"] = "C.UTF-8";
    s.environment["COLORTERM"] = "truecolor";
    return s;
  }
  Json settings_of(const std::string& picture) const { return parse_json(flux2({"inspect", "--json", picture}).out)["settings"]; }
};

constexpr const char* kPrompt = "flux2> \x1b[K\r\x1b[7C";  // the empty line, drawn

TEST_F(CliShell, ASession) {
  PseudoTerminal terminal(shell({"-o", "out/%d.png", "-s", "2", "--show", "blocks"}));
  const auto enter = [&](const std::string& line) {
    terminal.type(line + "\r");
    EXPECT_TRUE(terminal.wait_for(line));  // its echo
  };
  ASSERT_TRUE(terminal.wait_for(kPrompt));

  // Settings.
  enter("steps=3 seed=7");
  ASSERT_TRUE(terminal.wait_for("seed = 7"));
  ASSERT_TRUE(terminal.wait_for("steps = 3"));
  enter("steps=1000");  // refused: the old value stays
  ASSERT_TRUE(terminal.wait_for("1000 steps; the limit is 256"));
  enter("stepz=4");
  ASSERT_TRUE(terminal.wait_for("did you mean steps?"));
  for (const auto& [typed, meant] : {std::pair{"hlep", "help"}, {"steps 4", "steps=4"}, {"set size 96x64", "size=96x64"}}) {
    enter(typed);
    ASSERT_TRUE(terminal.wait_for(std::string("did you mean ") + meant + "?"));
  }

  // A prompt generates an image, which is drawn and becomes $1.
  enter("a large red circle in the center on a blue background");
  ASSERT_TRUE(terminal.wait_for("$1  out/1.png  128x128  seed 7"));
  EXPECT_THAT(terminal.passed(), HasSubstr("\x1b[38;2;"));
  EXPECT_THAT(terminal.passed(), HasSubstr("▀"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));

  // The image can be edited, with a size before the prompt.
  enter("$1 96x64 make it green");
  ASSERT_TRUE(terminal.wait_for("$2  out/2.png  96x64  seed 7  make it green"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));

  // A prompt may start with the name of a command.
  enter("open sea at night");
  ASSERT_TRUE(terminal.wait_for("$3  out/3.png  128x128"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));

  enter("explore 3 a star");
  ASSERT_TRUE(terminal.wait_for("$6  out/6.png"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  enter("use $5");
  ASSERT_TRUE(terminal.wait_for("seed = "));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  enter("show");
  ASSERT_TRUE(terminal.wait_for("prompt = a star"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  enter("undo");
  ASSERT_TRUE(terminal.wait_for("seed = 7"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));

  enter("save $2 kept/edited.jpg");
  ASSERT_TRUE(terminal.wait_for("is saved as kept/edited.jpg"));
  enter("save $9 x.png");
  ASSERT_TRUE(terminal.wait_for("image $9 does not exist"));
  enter("quit");
  EXPECT_EQ(terminal.wait(), 0) << terminal.output();

  const Json first = settings_of("out/1.png"), edited = settings_of("out/2.png"), saved = settings_of("kept/edited.jpg");
  EXPECT_EQ(first["steps"], 3);
  EXPECT_EQ(first["seed"], 7);
  EXPECT_EQ(edited["kind"], "edit");
  EXPECT_EQ(edited["references"][0]["name"], "1.png");
  EXPECT_EQ(saved["prompt"], "make it green");
  EXPECT_EQ(read_image(folder_ / "kept/edited.jpg").width, 96);
  EXPECT_EQ(settings_of("out/3.png")["kind"], "generate");  // the reference applied to one prompt only
  std::set<uint64_t> seeds;
  for (const char* explored : {"out/4.png", "out/5.png", "out/6.png"})
    seeds.insert(settings_of(explored)["seed"].get<uint64_t>());
  EXPECT_EQ(seeds.size(), 3u);
  // The lines are saved for the next session.
  EXPECT_THAT(bytes("home/history"), HasSubstr("\n$1 96x64 make it green\n"));
}

TEST_F(CliShell, LinesCanBeEditedCompletedAndRecalled) {
  PseudoTerminal terminal(shell({"--show", "off"}));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  // "stps=4", then the missing e is inserted, and Tab completes the key.
  terminal.type("stps=4\x1b[D\x1b[D\x1b[D\x1b[De\r");
  ASSERT_TRUE(terminal.wait_for("steps = 4"));
  terminal.type("neg\t");
  ASSERT_TRUE(terminal.wait_for("negative="));
  terminal.type("dark\r");
  ASSERT_TRUE(terminal.wait_for("negative = dark"));
  // Recalls the line before the last one, deletes a word and types another number.
  terminal.type("\x1b[A\x1b[A");
  ASSERT_TRUE(terminal.wait_for("steps=4"));
  terminal.type(
      "\x7f"
      "5\r");
  ASSERT_TRUE(terminal.wait_for("steps = 5"));
  terminal.type("s\t\t");
  ASSERT_TRUE(terminal.wait_for("save"));  // everything that starts with s is listed
  ASSERT_TRUE(terminal.wait_for("seed="));
  // Ctrl-C discards the line; a second one leaves the shell.
  terminal.type("\x03");
  ASSERT_TRUE(terminal.wait_for("^C"));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 130);
}

TEST_F(CliShell, CtrlCStopsARunButNotTheShell) {
  PseudoTerminal terminal(shell({"--show", "off", "--progress", "json", "-o", "out/"}));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  terminal.type("steps=200 size=512\r");
  ASSERT_TRUE(terminal.wait_for("width = 512"));
  terminal.type("a red circle\r");
  ASSERT_TRUE(terminal.wait_for("\"name\":\"denoise\",\"step\":1"));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.wait_for("stopped"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  terminal.type("steps=1 size=128 output=done.png\r");
  ASSERT_TRUE(terminal.wait_for("width = 128"));
  terminal.type("\r");
  ASSERT_TRUE(terminal.wait_for("$1  done.png"));
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_TRUE(exists("done.png"));
}

TEST_F(CliShell, StepsAreDrawnInPlace) {
  Start s = shell({"--show", "blocks", "--show-steps", "-s", "3", "-o", "x.png"});
  PseudoTerminal terminal(s);
  ASSERT_TRUE(terminal.wait_for(kPrompt));
  terminal.type("a red circle\r");
  ASSERT_TRUE(terminal.wait_for("$1  x.png"));
  size_t redrawn = 0;
  for (size_t at = terminal.passed().find("A\r"); at != std::string::npos; at = terminal.passed().find("A\r", at + 1)) ++redrawn;
  EXPECT_EQ(redrawn, 2u);
  terminal.type("quit\r");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(CliShell, ReadsLinesFromAPipe) {
  write("settings.txt", "# comment\nsteps=1\nseed=3\n");
  const Finished piped =
      flux2({"shell", "-o", "x.png"},
            "source ./settings.txt\na red circle\nwrite ./kept.txt\nit's a cat's life\n!nonsense\nload ./x.png\n$2\n");
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("$1  x.png  128x128  seed 3  a red circle\n"));
  EXPECT_THAT(piped.out, HasSubstr("$2  x-2.png  128x128  seed 3  it's a cat's life\n")) << "the first image stays";
  EXPECT_THAT(piped.out, HasSubstr("$3  ./x.png  128x128  seed 3  a red circle\n"));
  EXPECT_THAT(piped.err, HasSubstr("\"nonsense\" is not a command"));
  EXPECT_THAT(flux2({"shell"}, "save\n").err, HasSubstr("flux2: save is used like this: save [$N] PATH\n"));
  for (const char* command : {"source", "load"}) {  // a name without a dot is a file too
    const Finished missing = flux2({"shell"}, std::string(command) + " nofile\n");
    EXPECT_THAT(missing.err, HasSubstr("cannot open nofile"));
    EXPECT_EQ(missing.out, "");
  }
  EXPECT_EQ(bytes("kept.txt"), "prompt=\"a red circle\"\nseed=3\nsteps=1\n");
  // Without a terminal and without arguments, the program prints help.
  EXPECT_EQ(flux2({}).status, 2);
}

TEST_F(CliShell, WrongArgumentsOfACommandAreNoPrompt) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"use 3", "use is used like this: use $N"},
      {"run two", "run is used like this: run [N]"},
      {"explore fox", "explore is used like this: explore N [PROMPT]"},
      {"save $1", "save is used like this: save [$N] PATH"},
      {"save one two.png", "save is used like this: save [$N] PATH"},
      {"load my picture.png", "load is used like this: load PATH"},
      {"write my/settings of today", "write is used like this: write FILE"},
      {"show $1", "show takes no arguments"},
      {"reset stepz", "did you mean steps?"},
  };
  for (const auto& [line, message] : lines) {
    const Finished entered = flux2({"shell", "-o", "x.png"}, line + "\n");
    EXPECT_THAT(entered.err, HasSubstr(message)) << line;
    EXPECT_EQ(entered.out, "") << line;
    EXPECT_FALSE(exists("x.png")) << line;
  }
  EXPECT_THAT(flux2({"shell"}, "show jumping\n").err, HasSubstr("to use the line as a prompt: prompt=\"show jumping\""));
  const Finished written = flux2({"shell"}, "seed=3\nwrite settings\n");
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(bytes("settings"), "seed=3\n");
  const Finished saved = flux2({"shell", "-o", "x.png", "-s", "1"}, "a red circle\nsave kept\n");
  EXPECT_THAT(saved.err, HasSubstr("kept does not say in which format to save"));
}

}  // namespace
}  // namespace flux2::test
