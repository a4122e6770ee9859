// The checks of [safety] on the command line: what is refused leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"
#include "tests/support/tiny_classifier.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CliModeration : public Cli {
 protected:
  // The program with these checks; `logit` decides what the classifier says.
  Start checking(std::vector<std::string> words, float logit) const {
    Start s = start(std::move(words));
    s.environment["FLUX2_SAFETY_IMAGE"] = "nsfw";
    s.environment["FLUX2_SAFETY_NSFW_MODEL"] = write_tiny_classifier(folder_ / "home/vit", logit).string();
    return s;
  }
  Finished generate_checked(std::vector<std::string> words, float logit) const {
    words.insert(words.begin(), {"generate", "-s", "1", "--size", "64", "--seed", "3", "a red circle"});
    return run(checking(std::move(words), logit));
  }
  // Files of the test's folder that are not the program's own.
  size_t results() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) count += entry.path().filename() != "home";
    return count;
  }
};

TEST_F(CliModeration, ARefusedImageLeavesNothing) {
  const Finished refused = generate_checked({"-o", "out.png", "--preview-file", "preview.png", "--latents-out",
                                             "latents.safetensors", "--trace", "trace.safetensors", "--sidecar"},
                                            kFlagged);
  EXPECT_EQ(refused.status, 9) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("the image was refused by the safety check"));
  EXPECT_EQ(results(), 0u);
  EXPECT_EQ(generate_checked({"-o", "-"}, kFlagged).out, "") << "nothing on standard output";

  const Finished json = generate_checked({"-o", "out.png", "--json"}, kFlagged);
  EXPECT_EQ(json.status, 9);
  EXPECT_EQ(parse_json(json.out)["error"]["code"], "Refused");
  EXPECT_EQ(parse_json(json.out)["images"].size(), 0u);

  const Finished latents = generate_checked({"-o", "out.png", "--output-type", "latent_images"}, kFlagged);
  EXPECT_EQ(latents.status, 9);
  EXPECT_EQ(results(), 0u);
  EXPECT_EQ(generate_checked({"-o", "out.safetensors", "--output-type", "latent"}, kClean).status, 2);
  EXPECT_EQ(results(), 0u);
}

TEST_F(CliModeration, ACleanImageIsWritten) {
  ASSERT_EQ(generate_checked({"-o", "checked.png"}, kClean).status, 0);
  ASSERT_EQ(generate({"--size", "64", "--seed", "3", "-s", "1", "a red circle", "-o", "plain.png"}).status, 0);
  EXPECT_EQ(read_image(folder_ / "checked.png"), read_image(folder_ / "plain.png"));
}

TEST_F(CliModeration, AFlaggedImageCanBeBlurred) {
  Start s = checking({"generate", "-s", "1", "--size", "64", "a red circle", "-o", "out.png"}, kFlagged);
  s.environment["FLUX2_SAFETY_ON_FLAG"] = "blur";
  const Finished blurred = run(s);
  EXPECT_EQ(blurred.status, 0) << blurred.err;
  EXPECT_THAT(blurred.err, HasSubstr("blurred"));
  EXPECT_TRUE(exists("out.png"));
  EXPECT_THAT(flux2({"inspect", "out.png", "--json"}).out, HasSubstr("blurred"));
}

TEST_F(CliModeration, ReferencesAreCheckedBeforeAModelIsLoaded) {
  save_image(folder_ / "home/in.png", encode_png(Image(64, 64, 3)));
  Start s = checking({"edit", "-i", "home/in.png", "-s", "1", "make it red", "-o", "out.png", "-v"}, kFlagged);
  s.environment["FLUX2_SAFETY_CHECK"] = "references";
  const Finished refused = run(s);
  EXPECT_EQ(refused.status, 9) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("reference image 1 was refused"), Not(HasSubstr("denoise"))));
  EXPECT_EQ(results(), 0u);
}

TEST_F(CliModeration, EveryPromptOfAFileIsTried) {
  write("home/prompts.txt", "a red circle\na blue square\n");
  const Finished refused =
      run(checking({"generate", "-s", "1", "--size", "64", "--prompt-file", "home/prompts.txt", "-o", "out.png"}, kFlagged));
  EXPECT_EQ(refused.status, 9) << refused.err;
  EXPECT_EQ(results(), 0u);
  const std::string text = refused.err;
  const size_t first = text.find("was refused");
  ASSERT_NE(first, text.npos);
  EXPECT_NE(text.find("was refused", first + 1), text.npos) << "both are reported\n" << text;
}

TEST_F(CliModeration, AProjectFileCannotSwitchItOff) {
  if (flux2({"version", "-v"}).out.find("config files: yes") == std::string::npos) GTEST_SKIP() << "built without TOML";
  const fs::path vit = write_tiny_classifier(folder_ / "home/vit", kFlagged);
  write("home/config.toml", "[safety]\nimage = \"nsfw\"\nnsfw-model = \"" + vit.string() + "\"\n");
  write("flux2.toml", "[safety]\nimage = \"off\"\nnsfw-threshold = 1.0\ncheck = [\"prompt\"]\n");
  const Finished refused = generate({"--size", "64", "a red circle", "-o", "out.png"});
  EXPECT_EQ(refused.status, 9) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("safety.image is not used"));
  EXPECT_FALSE(exists("out.png"));
  write("home/config.toml", "[safety]\nimage = \"sometimes\"\n");
  EXPECT_EQ(generate({"a red circle"}).status, 2);
  write("home/config.toml", "[safety]\nnsfw_threshold = 1\n");
  EXPECT_THAT(generate({"a red circle"}).err, HasSubstr("safety.nsfw-threshold")) << "a wrong key is no way around it";
}

TEST_F(CliModeration, TheShellGoesOn) {
  const Start s = checking({"shell", "-s", "1", "--size", "64", "-o", "out.png"}, kFlagged);
  Start typed = s;
  typed.input = "a red circle\nsteps\nquit\n";
  const Finished done = run(typed);
  EXPECT_THAT(done.err + done.out, HasSubstr("refused by the safety check"));
  EXPECT_FALSE(exists("out.png"));
}

TEST_F(CliModeration, ImagesAndPromptsAreCheckedByHand) {
  save_image(folder_ / "home/in.png", encode_png(Image(64, 64, 3)));
  const auto check = [&](float logit, std::vector<std::string> more) {
    std::vector<std::string> words = {"safety", "check", "home/in.png", "--safety-nsfw-model",
                                      write_tiny_classifier(folder_ / "home/vit", logit).string()};
    words.insert(words.end(), more.begin(), more.end());
    return flux2(words);
  };
  const Finished flagged = check(kFlagged, {});
  EXPECT_EQ(flagged.status, 9) << flagged.err;
  EXPECT_EQ(flagged.out, "home/in.png  flagged by nsfw, nsfw 0.9975\n");
  const Finished clean = check(kClean, {"--json"});
  EXPECT_EQ(clean.status, 0) << clean.err;
  const Json json = parse_json(clean.out);
  EXPECT_EQ(json["flagged"], false);
  EXPECT_NEAR(json["results"][0]["nsfw"].get<double>(), 0.0024726, 1e-6);
  EXPECT_EQ(check(kFlagged, {"--safety-nsfw-threshold", "0.999"}).status, 0);
  EXPECT_EQ(flux2({"safety", "check"}).status, 2);
  EXPECT_EQ(flux2({"safety", "check", "--prompt", "a fox", "--safety-text", "quen"}).status, 2);
  EXPECT_EQ(flux2({"safety", "check", "home/in.png"}).status, 3) << "no classifier is installed";
  EXPECT_THAT(flux2({"safety"}).out, HasSubstr("Nothing is checked"));
  const Finished on = run(checking({"safety", "--json"}, kClean));
  EXPECT_EQ(parse_json(on.out)["image"], "nsfw");
}

}  // namespace
}  // namespace flux2::test
