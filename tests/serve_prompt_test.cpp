// Texts that a served model writes itself: rewritten prompts and descriptions of images. They equal those of the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "image/write_image.h"
#include "tests/support/served.h"

namespace flux2::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

class ServePrompt : public Served {
 protected:
  void make(const std::string& folder, std::vector<std::string> more) const {
    std::vector<std::string> words = {"models", "synth", "--layout", "diffusers", "--out", folder};
    words.insert(words.end(), more.begin(), more.end());
    const Finished made = flux2(words);
    ASSERT_EQ(made.status, 0) << made.err;
  }
  void serve(const std::string& model) {
    Start s = start({"serve", "--port", "0", "--data", (folder_ / "data").string(), "-m", (folder_ / model).string()});
    s.environment["FLUX2_UPSAMPLE_MAX_TOKENS"] = "12";
    listen(s);
  }
  // As files have it that were made for reading prompts alone.
  void lose_final_norm(const std::string& folder) const {
    const std::string file = folder + "/text_encoder/model.safetensors";
    std::string content = bytes(file);
    const std::string name = "\"model.norm.weight\"";
    const size_t at = content.find(name);
    ASSERT_NE(at, content.npos);
    content.replace(at, name.size(), "\"other.norm.weight\"");
    write(file, content);
  }
  static Image picture() {
    Image image(80, 64, 3);
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 7 % 251);
    return image;
  }
  // The text of the command line, and what the server answers. Control characters are no text: then both say so.
  void expect_equal(const std::vector<std::string>& words, const char* in_line, const std::string& path, const Json& body,
                    const char* in_answer, int& answers) const {
    const Finished line = flux2(words);
    const HttpAnswer http = send("POST", path, body);
    if (line.status != 0) {
      EXPECT_EQ(http.status, 502) << http.body;
      EXPECT_THAT(line.err, HasSubstr("the language model answered"));
      EXPECT_EQ(parse_json(http.body)["error"]["code"], "upsampler_failed");
      EXPECT_THAT(http.body, HasSubstr("the language model answered"));
      return;
    }
    ++answers;
    ASSERT_EQ(http.status, 200) << http.body;
    const Json said = parse_json(line.out), answered = parse_json(http.body);
    EXPECT_EQ(answered[in_answer], said[in_line]);
    EXPECT_EQ(answered["tokens"], said["tokens"]);
    EXPECT_EQ(answered["provider"], "local");
    EXPECT_EQ(answered["warnings"], said["warnings"]);
  }
};

TEST_F(ServePrompt, ADevModelWritesAndSeesAsOnTheCommandLine) {
  make("dev", {"--variant", "dev-tiny"});
  save_image(folder_ / "a.png", encode_png(picture()));
  serve("dev");
  const Json info = ask("GET", "/api/v1/info");
  EXPECT_THAT(info["features"]["upsample"], Contains("local"));
  EXPECT_EQ(info["features"]["rewriters"][0]["describes"], true);
  EXPECT_EQ(info["features"]["rewriters"][0]["host"], "");

  const std::string image = "data:image/png;base64," + base64_encode(encode_png(picture()));
  int rewritten = 0, described = 0, edited = 0;
  for (const int seed : {1, 2, 3, 4, 5, 6}) {
    const std::vector<std::string> how = {
        "-m",     (folder_ / "dev").string(), "--upsample", "local", "--upsample-max-tokens", "12",
        "--seed", std::to_string(seed),       "--offline",  "--json"};
    const auto with = [&](std::vector<std::string> words) {
      words.insert(words.end(), how.begin(), how.end());
      return words;
    };
    const Json common = {{"seed", seed}, {"max_tokens", 12}};
    const auto and_more = [&](Json body) {
      body.update(common);
      return body;
    };
    expect_equal(with({"prompt", "rewrite", "a fox"}), "rewritten_prompt", "/api/v1/prompt/rewrite",
                 and_more({{"prompt", "a fox"}}), "prompt", rewritten);
    expect_equal(with({"prompt", "rewrite", "make it red", "-i", "a.png"}), "rewritten_prompt", "/api/v1/prompt/rewrite",
                 and_more({{"prompt", "make it red"}, {"references", {image}}}), "prompt", edited);
    expect_equal(with({"prompt", "describe", "a.png", "--about", "a wall"}), "description", "/api/v1/prompt/describe",
                 and_more({{"image", image}, {"about", "a wall"}}), "description", described);
  }
  EXPECT_GT(rewritten, 0);
  EXPECT_GT(described, 0);
  EXPECT_GT(edited, 0);
  stop();
}

TEST_F(ServePrompt, AKleinModelWritesButDoesNotSee) {
  make("toy", {});
  serve("toy");
  EXPECT_EQ(ask("GET", "/api/v1/info")["features"]["rewriters"][0]["describes"], false);
  const HttpAnswer described =
      send("POST", "/api/v1/prompt/describe", {{"image", base64_encode(encode_png(picture()))}, {"provider", "local"}});
  EXPECT_EQ(described.status, 424);
  EXPECT_THAT(described.body, HasSubstr("cannot look at images"));
  EXPECT_EQ(send("POST", "/api/v1/prompt/rewrite", {{"prompt", "a fox"}, {"model", "no-such-model"}}).status, 404);

  // A job with "upsample" rewrites as the call alone does, and the command line.
  int compared = 0;
  for (const int seed : {1, 2, 3, 4, 5, 6}) {
    const HttpAnswer alone = send("POST", "/api/v1/prompt/rewrite", {{"prompt", "a fox"}, {"seed", seed}});
    const Json job = wait_for(
        ask("POST", "/api/v1/jobs",
            {{"prompt", "a fox"}, {"width", 64}, {"height", 64}, {"steps", 1}, {"seed", seed}, {"upsample", "local"}})["id"]);
    ASSERT_EQ(job["state"], "completed") << job.dump();
    if (alone.status == 200) {
      ++compared;
      EXPECT_EQ(job["rewritten_prompt"], parse_json(alone.body)["prompt"]);
    } else {
      EXPECT_TRUE(job["rewritten_prompt"].is_null());
      EXPECT_THAT(job["warnings"].dump(), HasSubstr("used as it is"));
    }
  }
  EXPECT_GT(compared, 0);

  // Without waiting: the job says what became of it.
  const Json job = ask("POST", "/api/v1/prompt/rewrite",
                       {{"prompt", "a fox"}, {"seed", 1}, {"max_tokens", 8}, {"wait", false}, {"task_id", "mine"}});
  EXPECT_EQ(job["kind"], "rewrite");
  EXPECT_EQ(job["client_ref"], "mine");
  const Json ended = wait_for(job["id"]);
  if (ended["state"] == "completed") {
    EXPECT_LE(ended["result"]["tokens"].get<int>(), 8);
  } else {
    EXPECT_THAT(ended["error"]["message"].get<std::string>(), HasSubstr("the language model answered"));
  }
  stop();
}

TEST_F(ServePrompt, AShortenedTextEncoderSaysSoAndKeepsThePrompt) {
  make("short", {});
  lose_final_norm("short");
  serve("short");
  EXPECT_EQ(ask("GET", "/api/v1/info")["features"]["rewriters"], Json::array());
  for (const Json& body : {Json{{"prompt", "a fox"}, {"provider", "local"}}, Json{{"prompt", "a fox"}}}) {
    const HttpAnswer refused = send("POST", "/api/v1/prompt/rewrite", body);
    EXPECT_EQ(refused.status, 424) << refused.body;
    EXPECT_EQ(parse_json(refused.body)["error"]["code"], "upsampler_unavailable");
    if (body.contains("provider")) {
      EXPECT_THAT(refused.body, HasSubstr("can read prompts but not write them"));
    }
  }
  Json image = {{"prompt", "a fox"}, {"width", 64}, {"height", 64}, {"steps", 1}, {"seed", 1}, {"upsample", "local"}};
  const Json kept = wait_for(ask("POST", "/api/v1/jobs", image)["id"]);
  EXPECT_EQ(kept["state"], "completed") << kept.dump();
  EXPECT_TRUE(kept["rewritten_prompt"].is_null());
  EXPECT_THAT(kept["warnings"].dump(), HasSubstr("can read prompts but not write them"));
  image["strict"] = true;
  EXPECT_EQ(wait_for(ask("POST", "/api/v1/jobs", image)["id"])["state"], "failed");
  stop();
  // The command line keeps the prompt too.
  const Finished line = flux2(
      {"generate", "-m", (folder_ / "short").string(), "-s", "1", "--size", "64", "a fox", "--upsample", "local", "-o", "a.png"});
  EXPECT_EQ(line.status, 0) << line.err;
  EXPECT_THAT(line.err, HasSubstr("used as it is"));
}

}  // namespace
}  // namespace flux2::test
