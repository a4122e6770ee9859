#include <gmock/gmock.h>

#include "net/http.h"
#include "server/api/native.h"
#include "server/api/test_api.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;
using testing::HasSubstr;

class PromptRoutes : public ApiTest {
 protected:
  PromptRoutes() { add_prompt_routes(router_, api_, defaults_); }

  void configure() { defaults_.add({{"upsample-url", {{server_.url() + "/v1"}, "test"}}, {"upsample-model", {{"m"}, "test"}}}); }
  std::pair<int, Json> rewrite(const Json& body) {
    const auto peer = post("/api/v1/prompt/rewrite", body);
    return {peer->response->status, Json::parse(peer->response->body)};
  }

  std::string answer_ = R"({"choices":[{"message":{"content":"A red fox."}}],"usage":{"completion_tokens":4}})";
  HttpServer server_{[this](const ServedRequest&) { return Reply{.body = answer_}; }};
  Settings defaults_;
};

TEST_F(PromptRoutes, AServerWithoutALanguageModelSaysSo) {
  const auto [status, json] = rewrite({{"prompt", "a fox"}});
  EXPECT_EQ(status, 424);
  EXPECT_EQ(json["error"]["code"], "upsampler_unavailable");
  EXPECT_EQ(json["error"]["message"], "this server is not configured to rewrite prompts");
  const auto described = post("/api/v1/prompt/describe", {{"image", "data:image/png;base64,AAAA"}});
  EXPECT_EQ(body_of(*described)["error"]["message"], "this server is not configured to describe images");
}

TEST_F(PromptRoutes, RewritesWithWhatIsConfigured) {
  if (!HttpClient::available()) GTEST_SKIP() << "built without an HTTP client";
  configure();
  const auto [status, json] = rewrite({{"prompt", "a fox"}, {"seed", 3}, {"max_tokens", 99}, {"kind", nullptr}});
  EXPECT_EQ(status, 200);
  EXPECT_EQ(json, (Json{{"prompt", "A red fox."},
                        {"provider", "http"},
                        {"model", "m"},
                        {"seed", 3},
                        {"tokens", 4},
                        {"warnings", Json::array()}}));
  EXPECT_EQ(Json::parse(server_.requests().at(0).body)["max_tokens"], 99);
  EXPECT_EQ(rewrite({{"prompt", "a fox"}, {"provider", "openrouter"}}).first, 424);
}

TEST_F(PromptRoutes, DescribesAnImage) {
  const Asset asset = assets_.put(encode_png(Image(16, 16, 3)), {.kind = "reference"});
  const Json body = {{"image", "asset:" + asset.id}, {"about", "a fox"}, {"seed", 5}};
  const auto ask = [&](const Json& what) {
    const auto peer = post("/api/v1/prompt/describe", what);
    return std::pair(peer->response->status, Json::parse(peer->response->body));
  };
  EXPECT_EQ(ask(body).first, 424) << "nobody is configured";
  if (!HttpClient::available()) GTEST_SKIP() << "built without an HTTP client";
  configure();
  const auto [status, json] = ask(body);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(json["description"], "A red fox.");
  EXPECT_EQ(json["provider"], "http");
  const Json messages = Json::parse(server_.requests().at(0).body)["messages"];
  EXPECT_EQ(messages[1]["content"][0]["type"], "image_url");
  EXPECT_EQ(messages[1]["content"][1]["text"], "Describe this image. About it: a fox");
  EXPECT_EQ(ask({{"about", "x"}}).first, 400);
  EXPECT_EQ(ask({{"image", "asset:01JD0000000000000000000000"}}).first, 400);
  EXPECT_EQ(ask({{"image", "data:image/png;base64,AAAA"}}).first, 400);
  answer_ = "nonsense";
  const auto [failed, why] = ask(body);
  EXPECT_EQ(failed, 502);
  EXPECT_EQ(why["error"]["code"], "upsampler_failed");
}

TEST_F(PromptRoutes, ImagesOfAnEditGoAlong) {
  if (!HttpClient::available()) GTEST_SKIP() << "built without an HTTP client";
  configure();
  const Asset asset = assets_.put(encode_png(Image(16, 16, 3)), {.kind = "reference"});
  EXPECT_EQ(rewrite({{"prompt", "make it red"}, {"references", {"asset:" + asset.id}}}).first, 200);
  const Json content = Json::parse(server_.requests().at(0).body)["messages"][1]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["type"], "image_url");
  EXPECT_EQ(rewrite({{"prompt", "x"}, {"references", {"asset:01JD0000000000000000000000"}}}).first, 400);
}

TEST_F(PromptRoutes, AFailureIsAnError) {
  if (!HttpClient::available()) GTEST_SKIP() << "built without an HTTP client";
  configure();
  answer_ = "nonsense";
  const auto [status, json] = rewrite({{"prompt", "a fox"}});
  EXPECT_EQ(status, 502);
  EXPECT_EQ(json["error"]["code"], "upsampler_failed");
}

TEST_F(PromptRoutes, BadRequestsAreRefused) {
  configure();
  for (const Json& body : {Json::object(), Json{{"prompt", " "}}, Json{{"prompt", 1}}, Json{{"prompt", "a"}, {"kind", "caption"}},
                           Json{{"prompt", "a"}, {"seed", -1}}, Json{{"prompt", "a"}, {"max_tokens", 0}},
                           Json{{"prompt", "a"}, {"references", "x"}}, Json{{"prompt", "a"}, {"url", "http://x"}}})
    EXPECT_EQ(rewrite(body).first, 400) << body;
  EXPECT_TRUE(server_.requests().empty());
}

// The worker writes; here the test plays it.
TEST_F(PromptRoutes, TheModelItselfWritesAsAJob) {
  const Json body = {{"prompt", "a fox"}, {"provider", "local"}, {"seed", 3}, {"max_tokens", 9}, {"task_id", "t"}};
  auto peer = post("/api/v1/prompt/rewrite", body);
  EXPECT_FALSE(peer->response) << "it waits";
  Job job = claim();
  EXPECT_EQ(job.kind, "rewrite");
  EXPECT_EQ(job.client_ref, "t");
  EXPECT_EQ(
      job.request,
      (Json{{"kind", "rewrite"}, {"seed", 3}, {"max_tokens", 9}, {"prompt", "a fox"}, {"edit", false}, {"provider", "local"}}));
  job.state = "completed";
  job.result = {{"prompt", "A red fox."}, {"provider", "local"},         {"model", "m"}, {"seed", 3}, {"tokens", 4},
                {"warnings", {"w"}},      {"timings_ms", Json::object()}};
  end(job);
  EXPECT_EQ(
      body_of(*peer),
      (Json{{"prompt", "A red fox."}, {"provider", "local"}, {"model", "m"}, {"seed", 3}, {"tokens", 4}, {"warnings", {"w"}}}));

  const auto failed_with = [&](const char* code) {
    peer = post("/api/v1/prompt/rewrite", body);
    Job failed = claim();
    failed.state = "failed";
    failed.error = {{"code", code}, {"message", "why"}, {"hint", "do this"}};
    end(failed);
    EXPECT_THAT(body_of(*peer)["error"]["message"].get<std::string>(), HasSubstr("the prompt was not rewritten: why"));
    EXPECT_EQ(body_of(*peer)["error"]["hint"], "do this");
    return std::pair(status_of(*peer), body_of(*peer)["error"]["code"].get<std::string>());
  };
  EXPECT_EQ(failed_with("incompatible"), std::pair(502, std::string("upsampler_failed")));
  EXPECT_EQ(failed_with("content_policy_violation"), std::pair(400, std::string("content_policy_violation")));
  EXPECT_EQ(failed_with("out_of_memory"), std::pair(503, std::string("out_of_memory")));

  // A client that leaves cancels its job, and somebody else may.
  peer = post("/api/v1/prompt/rewrite", body);
  peer->disconnect();
  EXPECT_TRUE(eventually([&] { return store_->waiting("gpu").empty(); }));
  peer = post("/api/v1/prompt/rewrite", body);
  queue_.cancel(store_->waiting("gpu").at(0).id);
  EXPECT_EQ(status_of(*peer), 503);
  EXPECT_EQ(body_of(*peer)["error"]["code"], "cancelled");
}

TEST_F(PromptRoutes, TheModelItselfWithoutWaiting) {
  const auto peer = post("/api/v1/prompt/rewrite", {{"prompt", "a fox"}, {"provider", "local"}, {"wait", false}});
  EXPECT_EQ(status_of(*peer), 202);
  EXPECT_EQ(body_of(*peer)["kind"], "rewrite");
  EXPECT_EQ(body_of(*peer)["state"], "queued");
  EXPECT_EQ(body_of(*peer)["result"], nullptr);
  // It runs before images that wait already.
  EXPECT_EQ(body_of(*peer)["priority"], 1);
}

TEST_F(PromptRoutes, AModelThatCannotSaysSo) {
  EXPECT_EQ(rewrite({{"prompt", "a fox"}, {"model", "no-such-model"}}).first, 404);
  EXPECT_EQ(rewrite({{"prompt", "a fox"}, {"provider", "ollama"}, {"model", "pico"}}).first, 400);
  EXPECT_EQ(rewrite({{"prompt", "a fox"}, {"provider", "local"}, {"model", "/etc/passwd"}}).first, 400);
  const Asset asset = assets_.put(encode_png(Image(16, 16, 3)), {.kind = "reference"});
  const auto peer = post("/api/v1/prompt/describe", {{"image", "asset:" + asset.id}, {"provider", "local"}});
  EXPECT_EQ(status_of(*peer), 424);
  EXPECT_THAT(body_of(*peer)["error"]["message"].get<std::string>(), HasSubstr("cannot look at images"));
  EXPECT_TRUE(store_->waiting("gpu").empty());
}

}  // namespace
}  // namespace flux2
