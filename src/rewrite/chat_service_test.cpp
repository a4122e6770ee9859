#include "rewrite/chat_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "base/base64.h"
#include "base/error.h"
#include "image/read_image.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kKey = "sk-very-secret";

ChatServiceOptions options_for(const HttpServer& server, ChatServiceOptions::Kind kind = ChatServiceOptions::Chat) {
  return {.kind = kind,
          .way = kind == ChatServiceOptions::Chat ? "http" : "ollama",
          .url = server.url() + (kind == ChatServiceOptions::Chat ? "/v1" : ""),
          .model = "some/model",
          .key = kKey,
          .timeout_s = 5,
          .first_wait_s = 0.01,
          .prompt_instructions = "SYSTEM",
          .edit_instructions = "EDIT"};
}

std::string chat(const std::string& content) {
  return Json{{"choices", {{{"message", {{"role", "assistant"}, {"content", content}}}, {"finish_reason", "stop"}}}},
              {"usage", {{"completion_tokens", 12}}}}
      .dump();
}

Error failure_of(ChatServiceOptions options, const RewriteQuestion& question = {.prompt = "a fox"},
                 const Rewriter::Cancelled& cancelled = {}) {
  ChatService service(std::move(options), {});
  try {
    service.answer(question, cancelled);
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorCode::Internal, "it answered");
}

TEST(ChatService, SendsWhatTheReferenceProgramSends) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = chat(" A red fox. ")}; });
  ChatServiceOptions options = options_for(server);
  options.params = {{"temperature", 0.15}};
  ChatService service(options, {});
  const RewriteAnswer answer = service.answer({.prompt = "a fox"}, {});
  EXPECT_EQ(answer.text, " A red fox. ");
  EXPECT_EQ(answer.tokens, 12);
  EXPECT_FALSE(answer.is_cut);
  const ServedRequest seen = server.requests().at(0);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.target, "/v1/chat/completions");
  EXPECT_EQ(seen.header("authorization"), std::string("Bearer ") + kKey);
  EXPECT_EQ(seen.header("content-type"), "application/json");
  EXPECT_EQ(seen.header("http-referer"), "");
  EXPECT_EQ(seen.body,
            R"({"model":"some/model","max_tokens":512,"temperature":0.15,"messages":[{"role":"system","content":"SYSTEM"},)"
            R"({"role":"user","content":"a fox"}]})");
}

TEST(ChatService, SendsImagesBeforeTheText) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = chat("x")}; });
  ChatServiceOptions options = options_for(server);
  Image wide(3000, 30, 3);
  for (const bool full_size : {false, true}) {
    options.full_size = full_size;
    ChatService(options, {}).answer({.prompt = "make it red", .is_edit = true, .images = {wide, Image(8, 8, 3)}}, {});
    const Json body = Json::parse(server.requests().back().body);
    EXPECT_EQ(body["messages"][0]["content"], "EDIT");
    const Json& content = body["messages"][1]["content"];
    ASSERT_EQ(content.size(), 3u);
    EXPECT_EQ(content[2], (Json{{"type", "text"}, {"text", "make it red"}}));
    const std::string url = content[0]["image_url"]["url"];
    EXPECT_TRUE(url.starts_with(full_size ? "data:image/png;base64," : "data:image/jpeg;base64,"));
    const Image sent = read_image(base64_decode(url.substr(url.find(',') + 1)), {});
    EXPECT_EQ(sent.width, full_size ? 3000 : 1536);
    EXPECT_EQ(sent.height, full_size ? 30 : 15);
  }
}

TEST(ChatService, AsksForADescription) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = chat("A fox.")}; });
  ChatServiceOptions options = options_for(server);
  options.caption_instructions = "CAPTION";
  ChatService service(options, {});
  EXPECT_EQ(service.answer({.images = {Image(8, 8, 3)}, .is_caption = true}, {}).text, "A fox.");
  const Json body = Json::parse(server.requests().back().body);
  EXPECT_EQ(body["messages"][0]["content"], "CAPTION");
  EXPECT_EQ(body["messages"][1]["content"][1], (Json{{"type", "text"}, {"text", "Describe this image."}}));
  EXPECT_TRUE(body["messages"][1]["content"][0]["image_url"]["url"].get<std::string>().starts_with("data:image/jpeg;base64,"));
}

TEST(ChatService, SpeaksToOllama) {
  HttpServer server([](const ServedRequest&) {
    return Reply{.body = R"({"model":"m","response":"{\"enhanced_prompt\": \"A red fox.\"}","done":true,"eval_count":9})"};
  });
  ChatServiceOptions options = options_for(server, ChatServiceOptions::Ollama);
  options.key.clear();
  options.max_tokens = 400;
  options.params = {{"options", {{"temperature", 0.2}}}};
  ChatService service(options, {});
  EXPECT_EQ(service.answer({.prompt = "a fox", .seed = 3}, {}).tokens, 9);
  const ServedRequest seen = server.requests().at(0);
  EXPECT_EQ(seen.target, "/api/generate");
  EXPECT_EQ(seen.header("authorization"), "");
  EXPECT_EQ(seen.body, R"({"model":"some/model","prompt":"a fox","system":"SYSTEM","stream":false,"keep_alive":"0",)"
                       R"("options":{"temperature":0.2,"top_p":0.9,"num_predict":400,"seed":3}})");
  service.answer({.prompt = "a fox", .is_edit = true, .images = {Image(8, 8, 3)}}, {});
  const Json body = Json::parse(server.requests().at(1).body);
  EXPECT_EQ(body["system"], "EDIT");
  EXPECT_EQ(read_image(base64_decode(body["images"][0].get<std::string>()), {}).width, 8);
}

TEST(ChatService, SaysWhenAnAnswerWasCut) {
  HttpServer server([](const ServedRequest& r) {
    return Reply{.body = r.target.starts_with("/v1")
                             ? R"({"choices":[{"message":{"content":"A fox. It"},"finish_reason":"length"}]})"
                             : R"({"response":"A fox. It","done_reason":"length"})"};
  });
  EXPECT_TRUE(ChatService(options_for(server), {}).answer({.prompt = "x"}, {}).is_cut);
  EXPECT_TRUE(ChatService(options_for(server, ChatServiceOptions::Ollama), {}).answer({.prompt = "x"}, {}).is_cut);
}

TEST(ChatService, AcceptsContentInParts) {
  HttpServer server([](const ServedRequest&) {
    return Reply{.body = R"({"choices":[{"message":{"content":[{"type":"text","text":"A "},{"type":"text","text":"fox"}]}}]})"};
  });
  EXPECT_EQ(ChatService(options_for(server), {}).answer({.prompt = "x"}, {}).text, "A fox");
}

TEST(ChatService, TriesAgainTwice) {
  for (const int status : {408, 409, 429, 500, 503}) {
    std::atomic<int> asked = 0;
    HttpServer server([&](const ServedRequest&) { return ++asked < 3 ? Reply{.status = status} : Reply{.body = chat("ok")}; });
    EXPECT_EQ(ChatService(options_for(server), {}).answer({.prompt = "x"}, {}).text, "ok") << status;
    EXPECT_EQ(asked, 3);
  }
  std::atomic<int> asked = 0;
  HttpServer server([&](const ServedRequest&) {
    ++asked;
    return Reply{.status = 500, .body = R"({"error":{"message":"no room"}})"};
  });
  EXPECT_THAT(failure_of(options_for(server)).what(), HasSubstr("answered with status 500: no room"));
  EXPECT_EQ(asked, 3);
}

TEST(ChatService, WaitsAsLongAsTheServerSays) {
  std::atomic<int> asked = 0;
  HttpServer server([&](const ServedRequest&) {
    return ++asked == 1 ? Reply{.status = 429, .headers = {{"Retry-After", "1"}}} : Reply{.body = chat("ok")};
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ChatService(options_for(server), {}).answer({.prompt = "x"}, {}).text, "ok");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(990));
  // Longer than there is time: it does not wait at all.
  HttpServer busy([](const ServedRequest&) { return Reply{.status = 429, .headers = {{"Retry-After", "3600"}}}; });
  EXPECT_THAT(failure_of(options_for(busy)).what(), HasSubstr("status 429"));
}

TEST(ChatService, ARefusalIsNotRepeated) {
  for (const int status : {400, 401, 403, 404}) {
    std::atomic<int> asked = 0;
    HttpServer server([&](const ServedRequest&) {
      ++asked;
      return Reply{.status = status, .body = std::string(R"({"error":"bad key )") + kKey + "\"}"};
    });
    const Error e = failure_of(options_for(server));
    EXPECT_EQ(e.code(), ErrorCode::Network);
    EXPECT_THAT(e.what(), HasSubstr("bad key"));
    EXPECT_THAT(e.what(), Not(HasSubstr(kKey))) << "the key is never shown";
    EXPECT_EQ(asked, 1);
  }
}

TEST(ChatService, RefusesNonsense) {
  for (const char* body : {"", "hello", "[]", "{}", "null", "{\"choices\":[]}", "{\"choices\":{}}", "{\"choices\":[1]}",
                           "{\"choices\":[{\"message\":null}]}", "{\"choices\":[{\"message\":{\"content\":5}}]}",
                           "{\"choices\":[{\"message\":{\"content\":\"cut"}) {
    HttpServer server([&](const ServedRequest&) { return Reply{.body = body}; });
    const Error e = failure_of(options_for(server));
    EXPECT_EQ(e.code(), ErrorCode::BadFile) << body;
    EXPECT_THAT(e.what(), HasSubstr("did not answer as a language model does")) << body;
    EXPECT_EQ(failure_of(options_for(server, ChatServiceOptions::Ollama)).code(), ErrorCode::BadFile) << body;
  }
}

TEST(ChatService, RefusesAnAnswerThatIsTooLong) {
  HttpServer server([](const ServedRequest&) { return Reply{.body = std::string(2 << 20, ' ')}; });
  EXPECT_EQ(failure_of(options_for(server)).code(), ErrorCode::Network);
}

TEST(ChatService, ConnectionsThatBreakAreTriedAgain) {
  std::atomic<int> asked = 0;
  HttpServer server(
      [&](const ServedRequest&) { return ++asked < 3 ? Reply{.body = chat("x"), .drop_after = 5} : Reply{.body = chat("ok")}; });
  EXPECT_EQ(ChatService(options_for(server), {}).answer({.prompt = "x"}, {}).text, "ok");
}

TEST(ChatService, EndsWhenTheTimeIsOver) {
  HttpServer silent([](const ServedRequest&) { return Reply{.wait_s = 60}; });
  HttpServer slow([](const ServedRequest&) { return Reply{.body = std::string(10'000'000, ' '), .bytes_per_s = 100'000}; });
  for (const HttpServer* server : {&silent, &slow}) {
    ChatServiceOptions options = options_for(*server);
    options.timeout_s = 0.3;
    const auto start = std::chrono::steady_clock::now();
    const Error e = failure_of(options);
    EXPECT_EQ(e.code(), ErrorCode::Network);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  }
}

TEST(ChatService, EndsWhenItIsCancelled) {
  HttpServer server([](const ServedRequest&) { return Reply{.wait_s = 2}; });
  std::atomic<int> asked = 0;
  EXPECT_EQ(failure_of(options_for(server), {.prompt = "x"}, [&] { return ++asked > 2; }).code(), ErrorCode::Cancelled);
}

TEST(ChatService, DoesNotFollowRedirects) {
  HttpServer other([](const ServedRequest&) { return Reply{.body = chat("stolen")}; });
  HttpServer server([&](const ServedRequest&) {
    return Reply{.status = 307, .headers = {{"Location", other.url() + "/v1/chat/completions"}}};
  });
  EXPECT_THAT(failure_of(options_for(server)).what(), HasSubstr("sends requests on"));
  EXPECT_TRUE(other.requests().empty()) << "neither the key nor the prompt goes there";
}

TEST(ChatService, NobodyListens) {
  std::string url;
  {
    HttpServer gone([](const ServedRequest&) { return Reply{}; });
    url = gone.url();
  }
  ChatServiceOptions options{.way = "http", .url = url, .model = "m", .timeout_s = 5, .first_wait_s = 0.01};
  EXPECT_THAT(failure_of(options).what(), HasSubstr("cannot be reached"));
}

TEST(ChatService, RefusesWhatWouldGoWrong) {
  const auto refusal = [](ChatServiceOptions options) -> std::string {
    try {
      ChatService(std::move(options), {});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.url = "http://example.com/v1", .key = "k"}), HasSubstr("https"));
  EXPECT_EQ(refusal({.url = "http://example.com/v1"}), "");
  EXPECT_THAT(refusal({.url = "http://localhost/v1", .params = {{"stream", true}}}), HasSubstr("\"stream\""));
  EXPECT_THAT(refusal({.url = "ftp://x"}), Not(""));
}

}  // namespace
}  // namespace flux2
