// Language models that look at images: the program with a chat server on loopback, and with a small dev model of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "image/write_image.h"
#include "tests/support/http_server.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CliDescribe : public Cli {
 protected:
  Start asking(std::vector<std::string> words) const {
    Start s = start(std::move(words));
    s.environment["FLUX2_UPSAMPLE"] = "http";
    s.environment["FLUX2_UPSAMPLE_URL"] = server_.url() + "/v1";
    s.environment["FLUX2_UPSAMPLE_MODEL"] = "m";
    return s;
  }
  Finished with_server(std::vector<std::string> words) const { return run(asking(std::move(words))); }
  void image(const std::string& name, int width = 40, int height = 30) const {
    Image picture(width, height, 3);
    for (size_t i = 0; i < picture.pixels.size(); ++i) picture.pixels[i] = static_cast<uint8_t>(i * 7 % 251);
    fs::create_directories((folder_ / name).parent_path());
    save_image(folder_ / name, encode_png(picture));
  }
  // A random dev model, whose answers are nonsense but always the same.
  void make_dev() const {
    ASSERT_EQ(flux2({"models", "synth", "--variant", "dev-tiny", "--layout", "diffusers", "--out", "dev"}).status, 0);
  }

  std::function<Reply(const ServedRequest&)> answer_ = [this](const ServedRequest&) {
    return Reply{.body =
                     Json{{"choices", {{{"message", {{"content", "A grey\nimage " + std::to_string(++asked_) + "."}}}}}}}.dump()};
  };
  std::atomic<int> asked_ = 0;
  HttpServer server_{[this](const ServedRequest& r) { return answer_(r); }};
};

TEST_F(CliDescribe, AServerDescribesAnImage) {
  image("a.png");
  const Finished plain = with_server({"prompt", "describe", "a.png", "--about", "a wall"});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.out, "A grey\nimage 1.\n");
  EXPECT_THAT(plain.err, HasSubstr(server_.url())) << "where it goes";
  const Json messages = parse_json(server_.requests().at(0).body)["messages"];
  EXPECT_THAT(messages[0]["content"].get<std::string>(), HasSubstr("You describe images"));
  EXPECT_EQ(messages[1]["content"][1]["text"], "Describe this image. About it: a wall");
  write("own.txt", "MY INSTRUCTIONS\n");
  const Finished json = with_server({"prompt", "describe", "a.png", "--json", "--instructions", "own.txt"});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(parse_json(json.out)["description"], "A grey\nimage 2.");
  EXPECT_EQ(parse_json(server_.requests().at(1).body)["messages"][0]["content"], "MY INSTRUCTIONS");
  EXPECT_EQ(with_server({"prompt", "describe", "a.png", "--offline"}).status, 2);
  EXPECT_NE(with_server({"prompt", "describe", "missing.png"}).status, 0);
  EXPECT_EQ(with_server({"prompt", "describe"}).status, 2);
  EXPECT_EQ(with_server({"prompt", "describe", "a.png", "b.png"}).status, 2);
}

TEST_F(CliDescribe, AFolderGetsCaptions) {
  for (const char* name : {"data/a.png", "data/b.png", "data/c.png"}) image(name);
  write("data/b.txt", "mine");
  Finished done = with_server({"dataset", "caption", "data", "--prefix", "tok, ", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(parse_json(done.out)["written"], 2);
  EXPECT_EQ(parse_json(done.out)["kept"], 1);
  EXPECT_EQ(bytes("data/a.txt"), "tok, A grey image 1.\n");
  EXPECT_EQ(bytes("data/b.txt"), "mine");
  done = with_server({"dataset", "caption", "data"});
  EXPECT_EQ(done.out, "0 captions written, 3 kept, 0 images left out\n");
  write("data/d.png", "damaged");
  done = with_server({"dataset", "caption", "data", "--overwrite"});
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.out, "3 captions written, 0 kept, 1 images left out\n");
  EXPECT_THAT(done.err, HasSubstr("d.png"));
  EXPECT_EQ(with_server({"dataset", "caption", "nowhere"}).status, 3);
}

TEST_F(CliDescribe, AStopLosesNoCaption) {
  for (const char* name : {"data/a.png", "data/b.png", "data/c.png"}) image(name);
  const auto answers = answer_;
  answer_ = [&](const ServedRequest& r) {
    Reply reply = answers(r);
    if (asked_ > 1) reply.wait_s = 20;
    return reply;
  };
  Subprocess process(asking({"dataset", "caption", "data"}));
  ASSERT_TRUE(process.wait_for_error_text("caption 2/3"));
  while (asked_ < 2) ::usleep(1000);
  process.signal(SIGINT);
  const Finished stopped = process.wait(15);
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_EQ(files_in("data"), 4u) << "three images and the first caption; nothing unfinished";
  EXPECT_TRUE(exists("data/a.txt"));
  answer_ = answers;
  EXPECT_EQ(with_server({"dataset", "caption", "data"}).out, "2 captions written, 1 kept, 0 images left out\n");
}

TEST_F(CliDescribe, ADevModelLooksItself) {
  make_dev();
  image("a.png");
  int answers = 0;
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) {
    const std::vector<std::string> words = {"prompt", "describe", "a.png", "-m",        "dev",   "--upsample-max-tokens",
                                            "12",     "--seed",   seed,    "--offline", "--json"};
    const Finished first = flux2(words);
    if (first.status != 0) {  // control characters are no description
      EXPECT_THAT(first.err, HasSubstr("the language model answered")) << first.err;
      continue;
    }
    ++answers;
    EXPECT_EQ(parse_json(first.out)["by"], "local");
    EXPECT_EQ(flux2(words).out, first.out);
  }
  EXPECT_GT(answers, 0);
}

TEST_F(CliDescribe, AModelWithoutEyesSaysSo) {
  image("a.png");
  ASSERT_EQ(flux2({"models", "synth", "--layout", "diffusers", "--out", "toy"}).status, 0);
  const Finished qwen = flux2({"prompt", "describe", "a.png", "-m", "toy"});
  EXPECT_NE(qwen.status, 0);
  EXPECT_THAT(qwen.err, AllOf(HasSubstr("cannot look at images"), HasSubstr("FLUX.2-dev")));
  const Finished caption = flux2({"dataset", "caption", ".", "-m", "toy"});
  EXPECT_NE(caption.status, 0);
  EXPECT_THAT(caption.err, HasSubstr("cannot look at images"));
}

// What the model sees decides its answer: another reference, another prompt.
TEST_F(CliDescribe, EditRewritingSeesTheReferences) {
  make_dev();
  image("a.png", 128, 128);
  image("b.png", 128, 80);
  const auto rewritten = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "prompt", "rewrite",           "make it red",          "-m",    "dev", "--upsample", "local", "--upsample-max-tokens",
        "10",     "--upsample-params", "{\"temperature\": 0}", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished done = flux2(words);
    EXPECT_TRUE(done.status == 0 || done.err.find("the language model answered") != std::string::npos) << done.err;
    return done.out + done.err;
  };
  const std::string a = rewritten({"-i", "a.png"}), both = rewritten({"-i", "a.png", "-i", "b.png"});
  const std::string blind = rewritten({"-i", "a.png", "--upsample-no-images"});
  EXPECT_EQ(rewritten({"-i", "a.png"}), a);
  EXPECT_TRUE(a != both || a != blind) << a;
  const Finished edited = flux2({"edit", "-m", "dev", "-s", "1", "--size", "64", "-i", "a.png", "make it red", "--upsample",
                                 "local", "--upsample-max-tokens", "6", "--seed", "3", "-o", "c.png"});
  EXPECT_EQ(edited.status, 0) << edited.err;
  EXPECT_EQ(parse_json(flux2({"inspect", "--json", "c.png"}).out)["settings"]["rewriting"]["by"], "local");
}

}  // namespace
}  // namespace flux2::test
