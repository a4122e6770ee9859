#include "app/prompt_rewriting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "app/prepare.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "tests/support/http_server.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string prompt_of(const ServedRequest& request) {
  return parse_json(request.body)["messages"][1]["content"].get<std::string>();
}

Reply chat_reply(const std::string& text) { return {.body = Json{{"choices", {{{"message", {{"content", text}}}}}}}.dump()}; }

class PromptRewriting : public testing::Test {
 protected:
  PromptRewriting() {
    context_.environment = [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
    context_.log = Log([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::Warning) warnings_.push_back(text);
    });
    own_ = {{"seed", {{"7"}, "test"}},           {"device", {{"cpu"}, "test"}},
            {"upsample", {{"http"}, "test"}},    {"upsample-url", {{server_.url() + "/v1"}, "test"}},
            {"upsample-model", {{"m"}, "test"}}, {"upsample-timeout", {{"5"}, "test"}}};
  }

  PreparedRun prepared(std::vector<PromptLine> lines) {
    Settings settings;
    settings.add(own_);
    return prepare(settings, std::move(lines), Task::Generate, context_);
  }
  void rewrite(PreparedRun& run) {
    const auto rewriter = open_rewriter(run.requests.front().spec, context_, run.offline, run.model);
    rewrite_prompts(run.requests, *rewriter, context_);
  }
  std::string refusal(bool offline = false) {
    Settings settings;
    settings.add(own_);
    try {
      open_rewriter(spec_of(settings), context_, offline, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
      return e.what();
    }
    return "";
  }
  void set(const char* name, const std::string& value) { own_[name] = {{value}, name}; }

  std::function<Reply(const ServedRequest&)> answer_ = [](const ServedRequest& r) {
    return chat_reply("Better: " + prompt_of(r));
  };
  HttpServer server_{[this](const ServedRequest& r) { return answer_(r); }};
  std::map<std::string, std::string> variables_ = {{"FLUX2_BUNDLED", test::pico_folder()}};
  AppContext context_;
  SettingLayer own_;
  std::vector<std::string> warnings_;
};

TEST_F(PromptRewriting, TheRecordKeepsBothPrompts) {
  set("negative", "blurry");
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}});
  rewrite(run);
  const ResolvedRequest& resolved = run.requests.at(0);
  EXPECT_EQ(resolved.request.prompt, "Better: a fox");
  EXPECT_EQ(resolved.request.negative, "blurry") << "negative prompts are never rewritten";
  const Json json = to_json(resolved.record);
  EXPECT_EQ(json["prompt"], "a fox");
  EXPECT_EQ(json["rewritten_prompt"], "Better: a fox");
  EXPECT_EQ(json["rewriting"], (Json{{"by", "http"}, {"failed", false}, {"model", "m"}}));
  const Json hidden = to_json(resolved.record, true);
  EXPECT_FALSE(hidden.contains("rewritten_prompt"));
  EXPECT_EQ(hidden.dump().find("fox"), std::string::npos);
  const GenerationRecord read = record_from_json(json);
  EXPECT_EQ(read.used_prompt(), "Better: a fox");
  EXPECT_EQ(read.rewriting.model, "m");
}

TEST_F(PromptRewriting, WildcardsAndStylesComeFirst) {
  own_["style"] = {{"noir"}, "test"};
  context_.user.values["styles.noir"] = {"{prompt}, noir"};
  PreparedRun run = prepared({{.prompt = "a {red|red} fox", .settings = {}}});
  rewrite(run);
  EXPECT_EQ(prompt_of(server_.requests().at(0)), "a red fox, noir");
}

TEST_F(PromptRewriting, ARewrittenPromptIsUsedAgain) {
  set("prompt", "a fox");
  set("rewritten-prompt", "Better: a fox");
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}, .literal = true}});
  EXPECT_EQ(run.requests.at(0).request.prompt, "Better: a fox");
  EXPECT_EQ(run.requests.at(0).record.prompt(), "a fox");
  EXPECT_FALSE(wants_rewriting(run.requests.at(0)));
  rewrite(run);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(PromptRewriting, ARewrittenPromptOfAnImageDoesNotOutliveItsPrompt) {
  own_["rewritten-prompt"] = {{"Better: a fox"}, "x.png", true};
  const PreparedRun run = prepared({{.prompt = "a cat", .settings = {}}});
  EXPECT_EQ(run.requests.at(0).request.prompt, "a cat");
  EXPECT_TRUE(wants_rewriting(run.requests.at(0)));
}

TEST_F(PromptRewriting, EqualPromptsAreRewrittenOnce) {
  set("batch", "3");
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}, {.prompt = "a fox", .settings = {}}});
  rewrite(run);
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(run.requests.size(), 2u);
  EXPECT_EQ(run.requests[1].request.prompt, "Better: a fox");
}

TEST_F(PromptRewriting, EachImageMayHaveItsOwn) {
  set("batch", "3");
  set("upsample-each", "true");
  int count = 0;
  answer_ = [&](const ServedRequest&) { return chat_reply(fmt::format("version {}", ++count)); };
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}});
  rewrite(run);
  ASSERT_EQ(run.requests.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(run.requests[i].request.prompt, fmt::format("version {}", i + 1));
    EXPECT_EQ(run.requests[i].request.seed, 7 + i);
    EXPECT_EQ(run.requests[i].record.seed(), 7 + i);
    EXPECT_EQ(run.requests[i].request.batch, 1);
  }
}

TEST_F(PromptRewriting, AFailureKeepsThePromptAndIsNotRepeated) {
  answer_ = [](const ServedRequest&) { return Reply{.status = 401, .body = R"({"error":"who are you"})"}; };
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}, {.prompt = "a cat", .settings = {}}});
  rewrite(run);
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("who are you")));
  for (const ResolvedRequest& resolved : run.requests) {
    EXPECT_FALSE(resolved.record.request.rewritten_prompt);
    EXPECT_EQ(resolved.request.prompt, resolved.record.prompt());
    EXPECT_EQ(to_json(resolved.record)["rewriting"]["failed"], true);
  }
}

TEST_F(PromptRewriting, LostQuotesConcernOnePrompt) {
  answer_ = [](const ServedRequest&) { return chat_reply("A sign."); };
  PreparedRun run = prepared({{.prompt = "\"OPEN\"", .settings = {}}, {.prompt = "a sign", .settings = {}}});
  rewrite(run);
  EXPECT_EQ(run.requests[0].request.prompt, "\"OPEN\"");
  EXPECT_EQ(run.requests[1].request.prompt, "A sign.");
  EXPECT_EQ(server_.requests().size(), 3u) << "two attempts for the first";
}

TEST_F(PromptRewriting, StrictMakesAFailureAnError) {
  set("strict", "true");
  answer_ = [](const ServedRequest&) { return Reply{.body = "nonsense"}; };
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}});
  EXPECT_THROW(rewrite(run), Error);
}

TEST_F(PromptRewriting, WhatIsMissingIsNamed) {
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(refusal(true), HasSubstr("needs the network"));
  own_.erase("upsample-model");
  EXPECT_THAT(refusal(), HasSubstr("model that rewrites"));
  set("upsample", "openrouter");
  EXPECT_THAT(refusal(), HasSubstr("OPENROUTER_API_KEY"));
  variables_["OPENROUTER_API_KEY"] = "k";
  EXPECT_EQ(refusal(), "");
  set("upsample-key-env", "MY_KEY");
  EXPECT_THAT(refusal(), HasSubstr("MY_KEY"));
  own_.erase("upsample-key-env"), own_.erase("upsample-url");
  set("upsample", "http");
  EXPECT_THAT(refusal(), HasSubstr("address"));
  set("upsample", "ollama");
  EXPECT_THAT(refusal(), HasSubstr("model that rewrites"));
  set("upsample-model", "llama3");
  EXPECT_EQ(refusal(), "");
}

TEST_F(PromptRewriting, AvailableWaysDependOnTheSettings) {
  Settings settings;
  settings.add(own_);
  EXPECT_THAT(available_rewriters(spec_of(settings), context_, false), ElementsAre("http", "ollama"));
  EXPECT_THAT(available_rewriters(spec_of(settings), context_, true), IsEmpty());
  const auto offers = offered_rewriters(spec_of(settings), context_, false);
  ASSERT_EQ(offers.size(), 2u);
  EXPECT_EQ(offers[0].way, "http");
  EXPECT_EQ(offers[0].model, "m");
  EXPECT_THAT(offers[0].place, HasSubstr("127.0.0.1"));
}

TEST_F(PromptRewriting, InstructionsCanBeReplaced) {
  const std::string path = testing::TempDir() + "instructions.txt";
  {
    AtomicFile file(path);
    file.write("  Write like a sailor.\n", 23);
    file.commit();
  }
  set("upsample-system-t2i", path);
  PreparedRun run = prepared({{.prompt = "a fox", .settings = {}}});
  rewrite(run);
  EXPECT_EQ(parse_json(server_.requests().at(0).body)["messages"][0]["content"], "Write like a sailor.");
}

}  // namespace
}  // namespace flux2
