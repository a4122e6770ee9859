// Image prompts from the command line: made, recorded, made again; in the shell; and what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"
#include "tests/support/random_image_prompt.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliImagePrompts : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_random_clip(folder_ / "clip-tiny", *synthetic_clip("clip-tiny"));
    write_random_image_prompt(folder_ / "adapter.safetensors", pico_image_prompt());
    save_image(folder_ / "red.png", encode_png(plain_image(220, 20, 30)));
    save_image(folder_ / "blue.png", encode_png(plain_image(20, 40, 210)));
  }

  // A disc on another colour, so that the image is not the same in all patches.
  static Image plain_image(int r, int g, int b) {
    Image image(96, 80, 3);
    for (int y = 0; y < 80; ++y)
      for (int x = 0; x < 96; ++x) {
        const bool inside = (x - 30) * (x - 30) + (y - 30) * (y - 30) < 400;
        const int colour[3] = {r, g, b};
        for (int c = 0; c < 3; ++c) image.at(x, y)[c] = static_cast<uint8_t>(inside ? colour[c] : 255 - colour[c] / 2);
      }
    return image;
  }
  Image picture(const std::string& name) const { return read_image(folder_ / name); }
  Json settings_of(const std::string& name) const { return parse_json(flux2({"inspect", "--json", name}).out)["settings"]; }
  Finished with_prompt(std::vector<std::string> words) const {
    for (const char* word : {"a white background", "-S", "3", "--size", "64", "--image-prompt-adapter", "adapter.safetensors",
                             "--image-prompt-encoder", "clip-tiny"})
      words.push_back(word);
    return generate(std::move(words));
  }
};

TEST_F(CliImagePrompts, AreRecordedAndComeBack) {
  ASSERT_EQ(generate({"a white background", "-S", "3", "--size", "64", "-o", "plain.png"}).status, 0);
  const Finished made = with_prompt({"--image-prompt", "red.png:0.8", "--image-prompt", "blue.png:0.5:0-0.5", "-o", "a.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_NE(picture("a.png"), picture("plain.png"));
  const Json settings = settings_of("a.png");
  ASSERT_EQ(settings["image_prompts"].size(), 2u) << settings.dump();
  EXPECT_EQ(settings["image_prompts"][0]["name"], "red.png");
  EXPECT_EQ(settings["image_prompts"][0]["strength"], 0.8);
  EXPECT_EQ(settings["image_prompts"][1]["to"], 0.5);
  EXPECT_EQ(settings["image_prompt_adapter"]["name"], "adapter");
  EXPECT_EQ(settings["image_prompt_adapter"]["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(settings["image_prompt_encoder"]["name"], "clip-tiny");

  const Finished again = flux2({"generate", "--from", "a.png", "-o", "b.png"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(picture("b.png"), picture("a.png"));
  EXPECT_EQ(flux2({"verify", "a.png"}).out, "a.png: identical\n");
  // Other image prompts replace all of them, and use the same adapter.
  ASSERT_EQ(flux2({"generate", "--from", "a.png", "--image-prompt", "blue.png", "-o", "c.png"}).status, 0);
  EXPECT_EQ(settings_of("c.png")["image_prompts"].size(), 1u);
  EXPECT_NE(picture("c.png"), picture("a.png"));
  // Files that are gone or changed.
  fs::rename(folder_ / "clip-tiny", folder_ / "elsewhere");
  const Finished no_encoder = flux2({"generate", "--from", "a.png", "-o", "d.png"});
  EXPECT_NE(no_encoder.status, 0);
  EXPECT_THAT(no_encoder.err, HasSubstr("image encoder clip-tiny, which is neither in its folder nor registered"));
  EXPECT_THAT(no_encoder.err, HasSubstr("--image-prompt-encoder FILE"));
  EXPECT_EQ(flux2({"generate", "--from", "a.png", "--image-prompt-encoder", "elsewhere", "-o", "d.png"}).status, 0);
  EXPECT_EQ(picture("d.png"), picture("a.png"));
  fs::copy_file(folder_ / "blue.png", folder_ / "red.png", fs::copy_options::overwrite_existing);
  EXPECT_THAT(flux2({"generate", "--from", "a.png", "-o", "e.png"}).err,
              HasSubstr("the image prompt red.png, which is not in its"));
}

TEST_F(CliImagePrompts, StrengthZeroIsNoImagePrompt) {
  ASSERT_EQ(generate({"a white background", "-S", "3", "--size", "64", "-o", "plain.png"}).status, 0);
  ASSERT_EQ(with_prompt({"--image-prompt", "red.png:0", "-o", "zero.png"}).status, 0);
  EXPECT_EQ(picture("zero.png"), picture("plain.png"));
  EXPECT_FALSE(settings_of("zero.png").contains("image_prompts"));
  // Then no adapter is needed.
  ASSERT_EQ(generate({"a white background", "-S", "3", "--size", "64", "--image-prompt", "red.png:0", "-o", "zero.png"}).status,
            0);
  EXPECT_EQ(picture("zero.png"), picture("plain.png"));
}

TEST_F(CliImagePrompts, BothFormsWorkWithEditingAndPasses) {
  write_random_image_prompt(folder_ / "tokens.safetensors", pico_image_prompt(ImagePromptForm::Tokens));
  const std::vector<std::string> both = {"adapter.safetensors", "tokens.safetensors"};
  for (const std::string& adapter : both) {
    const auto make = [&](std::vector<std::string> words, const std::string& out) {
      words.insert(words.end(),
                   {"-s", "2", "-S", "3", "--image-prompt-adapter", adapter, "--image-prompt-encoder", "clip-tiny", "-o", out});
      const Finished made = flux2(std::move(words));
      EXPECT_EQ(made.status, 0) << adapter << ": " << made.err;
    };
    make({"edit", "-i", "blue.png", "make it red", "--size", "64", "--image-prompt", "red.png", "--batch", "2"}, "edit.png");
    make({"generate", "a house", "--size", "64", "--hires", "1.5", "--image-prompt", "red.png", "--cfg", "2"}, "hires.png");
    EXPECT_EQ(picture("hires.png").width, 96);
    make({"inpaint", "-i", "blue.png", "--mask-box", "10,10,30,30", "a hat", "--image-prompt", "red.png"}, "inpaint.png");
  }
  const Finished regions = generate({"x", "--size", "64", "--region", "a@0,0,32,32", "--image-prompt", "red.png",
                                     "--image-prompt-adapter", "tokens.safetensors", "--image-prompt-encoder", "clip-tiny"});
  EXPECT_EQ(regions.status, 2);
  EXPECT_THAT(regions.err, HasSubstr("cannot be combined with prompts for regions"));
  EXPECT_EQ(with_prompt({"--region", "a@0,0,32,32", "--image-prompt", "red.png", "-o", "regions.png"}).status, 0);
}

TEST_F(CliImagePrompts, RegisteredOnesAreFoundByName) {
  if (flux2({"models", "list"}).status != 0) GTEST_SKIP() << "this build has no registry";
  ASSERT_EQ(flux2({"models", "add", "adapter.safetensors", "--name", "colours"}).status, 0);
  ASSERT_EQ(flux2({"models", "add", "clip-tiny"}).status, 0);
  ASSERT_EQ(with_prompt({"--image-prompt", "red.png", "-o", "a.png"}).status, 0);
  const Finished named = generate({"a white background", "-S", "3", "--size", "64", "--image-prompt", "red.png",
                                   "--image-prompt-adapter", "colours", "-o", "b.png"});
  ASSERT_EQ(named.status, 0) << named.err;
  EXPECT_THAT(named.err, Not(HasSubstr("may not be the same")));
  // Training with an encoder that has no published name states its geometry.
  ImagePromptConfig trained = pico_image_prompt();
  trained.encoder = synthetic_clip("clip-tiny")->name();
  write_random_image_prompt(folder_ / "trained.safetensors", trained);
  const Finished by_geometry = generate({"a white background", "-S", "3", "--size", "64", "--image-prompt", "red.png",
                                         "--image-prompt-adapter", "trained.safetensors", "-o", "c.png"});
  ASSERT_EQ(by_geometry.status, 0) << by_geometry.err;
  EXPECT_THAT(by_geometry.err, Not(HasSubstr("may not be the same")));
  EXPECT_EQ(picture("b.png"), picture("a.png"));
  EXPECT_THAT(generate({"x", "--image-prompt", "red.png"}).err, HasSubstr("registered: colours"));
  EXPECT_THAT(generate({"x", "--image-prompt", "red.png", "--image-prompt-adapter", "colour"}).err,
              HasSubstr("no image-prompt adapter named colour"));
}

TEST_F(CliImagePrompts, LinesOfAPromptFileHaveTheirOwn) {
  write_random_image_prompt(folder_ / "tokens.safetensors", pico_image_prompt(ImagePromptForm::Tokens));
  write("prompts.txt",
        "a white background --o plain.png\n"
        "a white background --image-prompt red.png:0.8 --o red_line.png\n"
        "a white background --image-prompt red.png --image-prompt blue.png:0.5:0-0.5 --image-prompt-adapter tokens.safetensors "
        "--o both_line.png\n");
  const Finished made = generate({"--prompt-file", "prompts.txt", "-S", "3", "--size", "64", "--image-prompt-adapter",
                                  "adapter.safetensors", "--image-prompt-encoder", "clip-tiny"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, Not(HasSubstr("has no effect")));
  ASSERT_EQ(with_prompt({"--image-prompt", "red.png:0.8", "-o", "red_alone.png"}).status, 0);
  EXPECT_EQ(picture("red_line.png"), picture("red_alone.png"));
  EXPECT_NE(picture("red_line.png"), picture("plain.png"));
  EXPECT_FALSE(settings_of("plain.png").contains("image_prompts"));
  EXPECT_EQ(settings_of("both_line.png")["image_prompts"].size(), 2u);
  EXPECT_EQ(settings_of("both_line.png")["image_prompt_adapter"]["name"], "tokens");
  EXPECT_EQ(flux2({"verify", "both_line.png"}).out, "both_line.png: identical\n");

  // A line's image prompts replace those of the command line. Strength 0 is none.
  write("prompts.txt",
        "a white background --o run.png\na white background --image-prompt red.png:0.8 --o own.png\n"
        "a white background --image-prompt red.png:0 --o none.png\n");
  ASSERT_EQ(generate({"--prompt-file", "prompts.txt", "-S", "3", "--size", "64", "--image-prompt", "blue.png",
                      "--image-prompt-adapter", "adapter.safetensors", "--image-prompt-encoder", "clip-tiny"})
                .status,
            0);
  EXPECT_EQ(settings_of("run.png")["image_prompts"][0]["name"], "blue.png");
  EXPECT_EQ(picture("own.png"), picture("red_line.png"));
  EXPECT_EQ(picture("none.png"), picture("plain.png"));
}

TEST_F(CliImagePrompts, MistakesInALineNameTheLine) {
  const auto made = [&](const std::string& line) {
    write("prompts.txt", "a fox --o fox.png\n" + line + "\n");
    return generate({"--prompt-file", "prompts.txt", "--size", "64"});
  };
  const Finished no_adapter = made("a house --image-prompt red.png");
  EXPECT_EQ(no_adapter.status, 2);
  EXPECT_THAT(no_adapter.err, HasSubstr("--image-prompt in line 2: an image prompt needs an image-prompt adapter"));
  EXPECT_FALSE(exists("fox.png"));
  EXPECT_THAT(made("a house --image-prompt red.png:9").err, HasSubstr("--image-prompt in line 2"));
  EXPECT_THAT(made("a house --image-prompt red.png --image-prompt-adapter lost").err,
              HasSubstr("--image-prompt-adapter in line 2: there is no image-prompt adapter named lost"));
  EXPECT_THAT(made("a house --image-prompt-adapter adapter.safetensors").err,
              HasSubstr("--image-prompt-adapter in line 2 has no effect, because there is no image prompt"));
  const Finished twice = flux2({"generate", "--prompt-file", "-"}, "a fox\na house --image-prompt -:0.5\n");
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.err,
              HasSubstr("--image-prompt in line 2: the prompt file and an image cannot both come from standard input"));
}

TEST_F(CliImagePrompts, WorkInTheShell) {
  ASSERT_EQ(with_prompt({"--image-prompt", "red.png:0.5", "-o", "a.png"}).status, 0);
  const Finished shell = flux2({"shell", "-s", "2"},
                               "size=64\nseed=3\nimage_prompt_adapter=adapter.safetensors\nimage_prompt_encoder=clip-tiny\n"
                               "image_prompt=red.png:0.5\noutput=b.png\nprompt=\"a white background\"\nrun\n");
  ASSERT_EQ(shell.status, 0) << shell.err;
  ASSERT_TRUE(exists("b.png")) << shell.out << shell.err;
  EXPECT_EQ(picture("b.png"), picture("a.png"));
}

TEST_F(CliImagePrompts, MistakesAreExplained) {
  const Finished none = generate({"x", "--image-prompt", "red.png"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--image-prompt: an image prompt needs an image-prompt adapter"));
  EXPECT_THAT(none.err, HasSubstr("--image-prompt-adapter FILE"));
  EXPECT_THAT(with_prompt({"--image-prompt", "lost.png"}).err, HasSubstr("lost.png"));
  EXPECT_THAT(with_prompt({"--image-prompt", "red.png:3"}).err, HasSubstr("a number from 0 to 2"));
  EXPECT_THAT(with_prompt({"--image-prompt", "red.png:1:0.5-0.2"}).err, HasSubstr("not from 0.5 to 0.2"));
  EXPECT_THAT(generate({"x", "--image-prompt", "red.png", "--image-prompt-adapter", "clip-tiny"}).err,
              HasSubstr("not an image-prompt adapter"));
  EXPECT_THAT(generate({"x", "--image-prompt", "red.png", "--image-prompt-adapter", "adapter.safetensors"}).err,
              HasSubstr("no registered image encoder has vectors of 64 values"));
  EXPECT_THAT(with_prompt({"-o", "a.png"}).err, HasSubstr("has no effect, because there is no image prompt"));
}

// What Milimo calls IP-Adapter images are references.
TEST_F(CliImagePrompts, IpAdapterImagesAreReferences) {
  ASSERT_EQ(flux2({"edit", "-s", "2", "-S", "3", "-i", "red.png", "make it blue", "-o", "a.png"}).status, 0);
  ASSERT_EQ(flux2({"edit", "-s", "2", "-S", "3", "--ip-adapter-image", "red.png", "-p", "make it blue", "-o", "b.png"}).status,
            0);
  EXPECT_EQ(picture("b.png"), picture("a.png"));
}

}  // namespace
}  // namespace flux2::test
