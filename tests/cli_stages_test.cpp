// Stages of a run that are run separately, and the messages of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "image/read_image.h"
#include "tests/support/program.h"
#include "tests/support/pseudo_terminal.h"
#include "weights/weight_source.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Stages : public Cli {
 protected:
  bool same_pixels(const std::string& a, const std::string& b) const {
    return read_image(folder_ / a).pixels == read_image(folder_ / b).pixels;
  }
};

TEST_F(Stages, TextIsEncodedSeparately) {
  const Finished encoded = flux2({"encode-text", "a red circle", "-n", "blue", "-o", "fox.safetensors", "--profile", "exact"});
  ASSERT_EQ(encoded.status, 0) << encoded.err;
  EXPECT_EQ(encoded.out, "fox.safetensors\n");
  const auto file = open_weights(folder_ / "fox.safetensors");
  ASSERT_TRUE(file->find("text.embeddings") && file->find("negative.embeddings"));
  EXPECT_EQ(file->find("text.embeddings")->shape, (Shape{64, 384}));
  const std::vector<std::string> rest = {"--seed", "1", "--profile", "exact"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), rest.begin(), rest.end());
    return words;
  };
  EXPECT_EQ(generate(with({"a red circle", "-n", "blue", "-o", "direct.png"})).status, 0);
  const Finished by_file = generate(with({"--text-states", "fox.safetensors", "-o", "states.png"}));
  EXPECT_EQ(by_file.status, 0) << by_file.err;
  EXPECT_TRUE(same_pixels("direct.png", "states.png"));
  EXPECT_EQ(flux2({"encode-text", "a fox"}).status, 2);  // no file
}

TEST_F(Stages, TextStatesAreKeptOnRequest) {
  EXPECT_EQ(generate({"a red circle", "--seed", "1", "-o", "plain.png"}).status, 0);
  EXPECT_FALSE(exists("home/cache/text"));
  EXPECT_EQ(generate({"a red circle", "--seed", "1", "--text-cache", "0.5", "-o", "first.png"}).status, 0);
  EXPECT_EQ(files_in("home/cache/text"), 2u);  // prompt and negative prompt
  const Finished second = generate({"a red circle", "--seed", "1", "--text-cache", "0.5", "-v", "-o", "second.png"});
  EXPECT_EQ(second.status, 0);
  EXPECT_THAT(second.err, HasSubstr("text states of the prompt: "));
  EXPECT_EQ(files_in("home/cache/text"), 2u);
  EXPECT_TRUE(same_pixels("plain.png", "first.png"));
  EXPECT_TRUE(same_pixels("plain.png", "second.png"));
}

TEST_F(Stages, VeryVerboseShowsShapesAndMemory) {
  const Finished run = generate({"a red circle", "-vv", "-o", "a.png"});
  EXPECT_THAT(run.err, HasSubstr("text: states [2, 64, 384]; pool "));
  EXPECT_THAT(run.err, HasSubstr("denoise: latents [1, 64, 128], 128 tokens a pass (64 text, 64 image, 0 of references)"));
  EXPECT_THAT(run.err, HasSubstr("decode: image [128, 128, 3]"));
  EXPECT_THAT(generate({"a red circle", "-v", "-o", "b.png"}).err, Not(HasSubstr("tokens a pass")));
}

// Decoding needs more memory than the steps. A second image shows that its steps are measured separately.
TEST_F(Stages, VeryVerboseShowsThePeakOfEachPhase) {
  const Finished run = generate({"a red circle", "--repeat", "2", "-vv", "-o", "a.png"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::regex line("(denoise|decode): .*pool ([0-9.]+) MiB at most in this phase");
  std::map<std::string, std::vector<double>> peaks;
  for (std::sregex_iterator at(run.err.begin(), run.err.end(), line), end; at != end; ++at)
    peaks[(*at)[1]].push_back(std::stod((*at)[2]));
  ASSERT_EQ(peaks["denoise"].size(), 2u) << run.err;
  ASSERT_EQ(peaks["decode"].size(), 2u) << run.err;
  EXPECT_LT(peaks["denoise"][1], 0.8 * peaks["decode"][0]);
}

TEST_F(Stages, LongSequencesAreMentioned) {
  EXPECT_THAT(generate({"a fox", "--size", "4096", "--dry-run"}).err, HasSubstr("65536 tokens"));
  EXPECT_THAT(generate({"a fox", "--size", "1024", "--dry-run"}).err, Not(HasSubstr("tokens")));
}

TEST_F(Stages, InspectShowsATableOfTensors) {
  const std::string text = flux2({"inspect", "-v", pico("flux-2-pico.safetensors")}).out;
  EXPECT_THAT(text, HasSubstr("PARAMETERS"));
  EXPECT_THAT(text, HasSubstr("double_blocks.*.img_attn.qkv.weight"));
  EXPECT_THAT(text, HasSubstr("total"));
  EXPECT_THAT(flux2({"inspect", pico("flux-2-pico.safetensors")}).out, Not(HasSubstr("PARAMETERS")));
}

// A line that is wider than the terminal wraps, and only its last row could be cleared.
TEST_F(Stages, ProgressFitsIntoANarrowTerminal) {
  constexpr size_t kColumns = 20;
  PseudoTerminal terminal(start({"generate", "a fox", "--steps", "12", "-o", "x.png"}), kColumns);
  EXPECT_EQ(terminal.wait(), 0);
  const std::string clear = "\r\x1b[K", output = terminal.output();
  size_t shown = 0;
  for (size_t end = output.find(clear), begin = 0; end != output.npos; end = output.find(clear, begin)) {
    const size_t line = std::max(begin, output.rfind('\n', end) + 1);
    const auto characters =
        std::count_if(output.begin() + static_cast<ptrdiff_t>(line), output.begin() + static_cast<ptrdiff_t>(end),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    EXPECT_LT(static_cast<size_t>(characters), kColumns) << output.substr(line, end - line);
    begin = end + clear.size();
    ++shown;
  }
  EXPECT_GT(shown, 3u);
}

TEST_F(Stages, ANamedModelThatIsNotInstalledIsOffered) {
  const Finished missing = generate({"a fox", "-m", "flux.2-klein-4b"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_THAT(missing.err, HasSubstr("`flux2 models install flux.2-klein-4b`"));
  EXPECT_THAT(missing.err, Not(HasSubstr("Install flux.2-klein-4b now")));

  PseudoTerminal terminal(start({"generate", "a fox", "-m", "flux.2-klein-4b"}));
  ASSERT_TRUE(terminal.wait_for("Install flux.2-klein-4b now"));
  ASSERT_TRUE(terminal.wait_for("[y/N]"));
  terminal.type("n\n");
  EXPECT_TRUE(terminal.wait_for("flux2 models install flux.2-klein-4b"));
  EXPECT_EQ(terminal.wait(), 3);

  // -y does not ask. No server listens at that address, so the download fails at once.
  Start yes = start({"generate", "a fox", "-m", "flux.2-klein-4b", "-y"});
  yes.environment["HF_ENDPOINT"] = "http://127.0.0.1:9";
  const Finished fetched = run(yes);
  EXPECT_NE(fetched.status, 0);
  EXPECT_THAT(fetched.err, HasSubstr("127.0.0.1:9"));
  EXPECT_EQ(generate({"a fox", "-m", "flux.2-klein-4b", "-y", "--offline"}).status, 3);
}

TEST_F(Stages, SelftestPasses) {
  const Finished run = flux2({"selftest", "--device", "cpu:scalar"});
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("cpu:scalar exact"));
  EXPECT_THAT(run.out, HasSubstr("file ae.safetensors"));
  EXPECT_THAT(run.out, HasSubstr("everything works"));
}

}  // namespace
}  // namespace flux2::test
