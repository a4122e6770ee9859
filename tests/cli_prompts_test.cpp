// Prompts from files and images, prompts with wildcards, several prompts in one run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <sstream>

#include "image/read_image.h"
#include "image/write_image.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class CliPrompts : public Cli {
 protected:
  Json settings_of(const std::string& picture) const { return parse_json(flux2({"inspect", "--json", picture}).out)["settings"]; }
  std::vector<Json> dry_run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"generate", "--dry-run", "--json"});
    const Finished done = flux2(words);
    EXPECT_EQ(done.status, 0) << done.err;
    return parse_json(done.out)["requests"].get<std::vector<Json>>();
  }
};

TEST_F(CliPrompts, ChoicesAreMadeForEveryPictureOfABatch) {
  fs::create_directories(folder_ / "wildcards");
  write("wildcards/colour.txt", "red\ngreen\nblue\n");
  const std::vector<std::string> words = {"a __colour__ {circle|star}", "-b", "12", "-S", "5", "-s", "1", "-o", "out/"};
  std::vector<std::string> all = words;
  all.insert(all.begin(), "generate");
  const Finished made = flux2(all);
  ASSERT_EQ(made.status, 0) << made.err;
  std::istringstream paths(made.out);
  std::set<std::string> prompts;
  std::set<uint64_t> seeds;
  for (std::string path; std::getline(paths, path);) {
    const Json settings = settings_of(path);
    prompts.insert(settings["prompt"].get<std::string>());
    seeds.insert(settings["seed"].get<uint64_t>());
    // An image that is generated alone gets the same choices as in the batch.
    if (settings["seed"] == 9) {
      ASSERT_EQ(flux2({"generate", words[0], "-S", "9", "-s", "1", "-o", "single.png"}).status, 0);
      EXPECT_EQ(settings_of("single.png")["prompt"], settings["prompt"]);
      EXPECT_EQ(read_image(folder_ / "single.png"), read_image(folder_ / path));
    }
  }
  EXPECT_EQ(seeds.size(), 12u);
  EXPECT_GE(prompts.size(), 4u);
  for (const std::string& prompt : prompts) EXPECT_THAT(prompt, testing::MatchesRegex("a (red|green|blue) (circle|star)"));

  const Finished missing = generate({"a __beast__"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_THAT(missing.err, HasSubstr("file beast.txt for __beast__ not found"));
  ASSERT_EQ(generate({"a __beast__ {x|y}", "--wildcards", "off", "-o", "off.png"}).status, 0);
  EXPECT_EQ(settings_of("off.png")["prompt"], "a __beast__ {x|y}");
  // A prompt that was read from an image is not expanded again.
  ASSERT_EQ(generate({"--from", "off.png", "-o", "again.png"}).status, 0);
  EXPECT_EQ(settings_of("again.png")["prompt"], "a __beast__ {x|y}");
}

TEST_F(CliPrompts, EveryLineOfAFileHasItsOwnOptions) {
  write("prompts.txt",
        "# a comment\n"
        "a red circle --w 64 --h 96 --s 3 --d 7 --l 2 --n dark colours\n"
        "a blue star -- not an option --d 8 --o star.png\n"
        "like image 1 --ci one.ppm --ci two.ppm\n");
  write("one.ppm", "P6 80 64 255\n" + std::string(80 * 64 * 3, 'x'));
  write("two.ppm", "P6 64 64 255\n" + std::string(64 * 64 * 3, 'y'));
  const auto requests = dry_run({"--prompt-file", "prompts.txt", "--steps", "5"});
  ASSERT_EQ(requests.size(), 3u);
  ASSERT_EQ(requests[2]["references"].size(), 2u);
  EXPECT_EQ(requests[2]["references"][1]["name"], "two.ppm");
  EXPECT_EQ(requests[2]["width"], 80);
  EXPECT_EQ(requests[0]["prompt"], "a red circle");
  EXPECT_EQ(requests[0]["width"], 64);
  EXPECT_EQ(requests[0]["height"], 96);
  EXPECT_EQ(requests[0]["steps"], 3);
  EXPECT_EQ(requests[0]["seed"], 7);
  EXPECT_EQ(requests[0]["cfg"], 2);
  EXPECT_EQ(requests[0]["negative"], "dark colours");
  EXPECT_EQ(requests[1]["prompt"], "a blue star -- not an option");
  EXPECT_EQ(requests[1]["steps"], 5);
  write("wrong.txt", "a fox\na fox --q 3\n");
  const Finished wrong = generate({"--prompt-file", "wrong.txt"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--q in line 2"));
  const Finished missing = generate({"--prompt-file", "nowhere.txt"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_EQ(missing.err, "flux2: cannot open nowhere.txt: No such file or directory\n");
}

// An interruption stops the current image and keeps the finished ones.
TEST_F(CliPrompts, AnInterruptionKeepsFinishedPictures) {
  write("prompts.txt", "a red circle --s 1 --o first.png\na blue star --s 60 --w 512 --h 512 --o second.png\n");
  Subprocess process(start({"generate", "--prompt-file", "prompts.txt", "--progress", "json"}));
  ASSERT_TRUE(process.wait_for_error_text("first.png"));
  ASSERT_TRUE(process.wait_for_error_text("\"name\":\"denoise\",\"step\":2"));
  process.signal(SIGINT);
  const Finished interrupted = process.wait();
  EXPECT_EQ(interrupted.status, 130) << interrupted.err;
  EXPECT_EQ(interrupted.out, "first.png\n");
  EXPECT_EQ(read_image(folder_ / "first.png").width, 128);
  EXPECT_FALSE(exists("second.png"));
}

TEST_F(CliPrompts, SettingsComeFromPicturesOfOtherPrograms) {
  const auto save = [&](const std::string& name, const std::string& key, const std::string& text) {
    ImageMetadata metadata;
    metadata.text.emplace_back(key, text);
    save_image(folder_ / name, encode_png(Image(8, 8, 3), metadata));
  };
  save("a1111.png", "parameters",
       "a green heart\nNegative prompt: dark\nSteps: 6, Sampler: Euler, CFG scale: 2, Seed: 77, Size: 96x64, Model: x");
  auto request = dry_run({"--from", "a1111.png"})[0];
  EXPECT_EQ(request["prompt"], "a green heart");
  EXPECT_EQ(request["negative"], "dark");
  EXPECT_EQ(request["steps"], 6);
  EXPECT_EQ(request["seed"], 77);
  EXPECT_EQ(request["width"], 96);
  EXPECT_EQ(request["height"], 64);
  request =
      dry_run({"--from", "a1111.png", "--steps", "2", "-S", "5", "a red heart"})[0];  // the command line overrides the image
  EXPECT_EQ(request["prompt"], "a red heart");
  EXPECT_EQ(request["steps"], 2);
  EXPECT_EQ(request["seed"], 5);
  EXPECT_EQ(request["width"], 96);

  save("comfy.png", "prompt",
       R"({"1":{"class_type":"KSampler","inputs":{"seed":12,"steps":3,"cfg":1.0,"positive":["2",0],"latent_image":["3",0]}},
           "2":{"class_type":"CLIPTextEncode","inputs":{"text":"a yellow moon"}},
           "3":{"class_type":"EmptyLatentImage","inputs":{"width":64,"height":80}}})");
  request = dry_run({"--from", "comfy.png"})[0];
  EXPECT_EQ(request["prompt"], "a yellow moon");
  EXPECT_EQ(request["seed"], 12);
  EXPECT_EQ(request["steps"], 3);
  EXPECT_EQ(request["height"], 80);
  EXPECT_NE(dry_run({"--remix", "comfy.png"})[0]["seed"], 12);

  save("silent.png", "Comment", "nothing");
  const Finished silent = generate({"--from", "silent.png"});
  EXPECT_EQ(silent.status, 4);
  EXPECT_THAT(silent.err, HasSubstr("does not contain its settings"));
}

}  // namespace
}  // namespace flux2::test
