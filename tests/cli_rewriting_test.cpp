// Prompts that a language model rewrites: the program with a chat server on loopback, and with a small model of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/http_server.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "sk-never-shown";

class CliRewriting : public Cli {
 protected:
  Finished with_server(std::vector<std::string> words, const std::string& input = {}) const {
    Start s = start(std::move(words));
    s.input = input;
    s.environment["FLUX2_UPSAMPLE"] = "http";
    s.environment["FLUX2_UPSAMPLE_URL"] = server_.url() + "/v1";
    s.environment["FLUX2_UPSAMPLE_MODEL"] = "m";
    s.environment["FLUX2_UPSAMPLE_KEY_ENV"] = "CHAT_KEY";
    s.environment["CHAT_KEY"] = kSecret;
    return run(s);
  }
  Json settings_of(const std::string& image) const { return parse_json(flux2({"inspect", "--json", image}).out)["settings"]; }
  static std::string last_text(const ServedRequest& request) {
    const Json content = parse_json(request.body)["messages"][1]["content"];
    return content.is_string() ? content.get<std::string>() : content.back()["text"].get<std::string>();
  }

  std::function<Reply(const ServedRequest&)> answer_ = [](const ServedRequest& r) {
    return Reply{.body = Json{{"choices", {{{"message", {{"content", "Better: " + last_text(r)}}}}}}}.dump()};
  };
  HttpServer server_{[this](const ServedRequest& r) { return answer_(r); }};
};

TEST_F(CliRewriting, TheImageKeepsBothPromptsAndFromAsksNobody) {
  const Finished made = with_server({"generate", "-s", "2", "--seed", "7", "a circle", "-o", "a.png"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, AllOf(HasSubstr(server_.url()), Not(HasSubstr(kSecret)), Not(HasSubstr("Better")))) << "where it goes";
  const Json settings = settings_of("a.png");
  EXPECT_EQ(settings["prompt"], "a circle");
  EXPECT_EQ(settings["rewritten_prompt"], "Better: a circle");
  EXPECT_EQ(server_.requests().at(0).header("authorization"), std::string("Bearer ") + kSecret);
  EXPECT_EQ(bytes("a.png").find(kSecret), std::string::npos);

  server_.forget();
  ASSERT_EQ(with_server({"generate", "--from", "a.png", "-o", "b.png"}).status, 0);
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_EQ(settings_of("b.png")["rewritten_prompt"], "Better: a circle");
  const Finished plain = flux2({"generate", "-s", "2", "--seed", "7", "Better: a circle", "-o", "c.png"});
  ASSERT_EQ(plain.status, 0);
  EXPECT_EQ(flux2({"verify", "b.png"}).status, 0) << "the record generates the same pixels";

  // Another prompt is rewritten anew.
  ASSERT_EQ(with_server({"generate", "--from", "a.png", "a square", "-o", "d.png"}).status, 0);
  EXPECT_EQ(settings_of("d.png")["rewritten_prompt"], "Better: a square");
}

TEST_F(CliRewriting, AFailureKeepsThePromptLoudly) {
  for (const char* body : {"nonsense", "{\"choices\":[]}", ""}) {
    answer_ = [&](const ServedRequest&) { return Reply{.body = body}; };
    const Finished made = with_server({"generate", "-s", "2", "a circle", "-o", "a.png"});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_THAT(made.err, AllOf(HasSubstr("warning"), HasSubstr("is used as it is"))) << body;
    const Json settings = settings_of("a.png");
    EXPECT_EQ(settings["prompt"], "a circle");
    EXPECT_TRUE(settings["rewritten_prompt"].is_null());
    EXPECT_EQ(settings["rewriting"]["failed"], true);
  }
  EXPECT_NE(with_server({"generate", "-s", "2", "a circle", "--strict", "-o", "b.png"}).status, 0);
  EXPECT_FALSE(exists("b.png"));
}

TEST_F(CliRewriting, AServerThatHangsOrBreaksOff) {
  answer_ = [](const ServedRequest&) { return Reply{.wait_s = 3}; };
  Finished made = with_server({"generate", "-s", "2", "a circle", "-o", "a.png", "--upsample-timeout", "0.3"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("did not answer within"));
  answer_ = [](const ServedRequest&) { return Reply{.body = std::string(100, 'x'), .drop_after = 10}; };
  made = with_server({"generate", "-s", "2", "a circle", "-o", "b.png", "--upsample-timeout", "5"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("is used as it is"));
}

TEST_F(CliRewriting, APlanAndADryRunAskNobody) {
  EXPECT_EQ(with_server({"plan", "a circle"}).status, 0);
  EXPECT_EQ(with_server({"generate", "a circle", "--dry-run"}).status, 0);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(CliRewriting, OfflineForbidsIt) {
  const Finished made = with_server({"generate", "-s", "2", "a circle", "-o", "a.png", "--offline"});
  EXPECT_EQ(made.status, 2);
  EXPECT_THAT(made.err, HasSubstr("needs the network"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(CliRewriting, AProjectFileCannotSwitchItOn) {
  write("flux2.toml", "[generate]\nupsample = \"http\"\n[upsample]\nurl = \"" + server_.url() + "/v1\"\nmodel = \"m\"\n");
  const Finished made = flux2({"generate", "-s", "2", "a circle", "-o", "a.png"});
  EXPECT_TRUE(server_.requests().empty()) << made.err;
}

TEST_F(CliRewriting, RewriteAlone) {
  const Finished plain = with_server({"prompt", "rewrite", "a \"RED\" fox"});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.out, "Better: a \"RED\" fox\n");
  const Finished json = with_server({"prompt", "rewrite", "-p", "-", "--json"}, "from a pipe\n");
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_EQ(parse_json(json.out)["rewritten_prompt"], "Better: from a pipe");
  answer_ = [](const ServedRequest&) { return Reply{.status = 401}; };
  const Finished failed = with_server({"prompt", "rewrite", "a fox"});
  EXPECT_NE(failed.status, 0) << "alone, a failure is an error";
  EXPECT_EQ(failed.out, "");
  EXPECT_THAT(failed.err, HasSubstr("status 401"));
  EXPECT_EQ(flux2({"prompt", "rewrite", "a fox"}).status, 2) << "nobody is chosen";
  EXPECT_EQ(flux2({"prompt"}).status, 2);
  EXPECT_EQ(flux2({"prompt", "sing"}).status, 2);
}

TEST_F(CliRewriting, TheShellShowsAndUsesIt) {
  const Finished done = with_server({"shell", "-s", "2", "-o", "out/%d.png", "--show", "off"},
                                    "autorun=off\na circle\nrewrite\n\nupsample=none\na square\n\n");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("rewritten: Better: a circle"));
  EXPECT_EQ(server_.requests().size(), 1u) << "the empty line uses what was rewritten";
  EXPECT_EQ(settings_of("out/1.png")["rewritten_prompt"], "Better: a circle");
  EXPECT_TRUE(settings_of("out/2.png")["rewritten_prompt"].is_null()) << "it belonged to the first prompt";
}

// A small random model writes nonsense, but the same nonsense for the same seed.
TEST_F(CliRewriting, AModelRewritesItsOwnPrompts) {
  ASSERT_EQ(flux2({"models", "synth", "--layout", "diffusers", "--out", "toy"}).status, 0);
  const auto rewritten = [&](const std::string& seed) {
    return flux2({"prompt", "rewrite", "a fox", "-m", "toy", "--upsample", "local", "--upsample-max-tokens", "12", "--seed", seed,
                  "--offline", "--json"});
  };
  int answers = 0;
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) {
    const Finished first = rewritten(seed);
    if (first.status != 0) {  // control characters are no prompt
      EXPECT_THAT(first.err, HasSubstr("the language model answered")) << first.err;
      continue;
    }
    ++answers;
    EXPECT_EQ(rewritten(seed).out, first.out);
    EXPECT_LE(parse_json(first.out)["tokens"].get<int>(), 12);
  }
  EXPECT_GT(answers, 0);
  const Finished made = flux2({"generate", "-m", "toy", "-s", "1", "--size", "64", "a fox", "--upsample", "local",
                               "--upsample-max-tokens", "4", "--seed", "3", "-o", "a.png"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(settings_of("a.png")["rewriting"]["by"], "local");
  EXPECT_EQ(flux2({"prompt", "rewrite", "x", "-m", "toy", "--upsample", "local", "--upsample-model", "y"}).status, 2);
}

}  // namespace
}  // namespace flux2::test
