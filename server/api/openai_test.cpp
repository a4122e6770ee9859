#include "server/api/openai.h"

#include <gmock/gmock.h>

#include "base/base64.h"
#include "image/read_image.h"
#include "server/api/test_api.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class OpenAiRoutes : public ApiTest {
 protected:
  OpenAiRoutes() { add_openai_routes(router_, api_); }

  static std::string code_of(const FakePeer& peer) { return body_of(peer)["error"]["code"].get<std::string>(); }
  static Json param_of(const FakePeer& peer) { return body_of(peer)["error"]["param"]; }
};

TEST_F(OpenAiRoutes, ListsTheBundledModel) {
  const Json list = body_of(*get("/v1/models"));
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "pico");
  EXPECT_GT(list["data"][0]["created"].get<int64_t>(), 0);
  EXPECT_EQ(list["data"][0]["loaded"], false);
  api_.loaded_model = [] { return std::string("pico"); };
  EXPECT_EQ(body_of(*get("/v1/models/pico"))["loaded"], true);
  const auto unknown = get("/v1/models/nobody");
  EXPECT_EQ(status_of(*unknown), 404);
  EXPECT_EQ(code_of(*unknown), "model_not_found");
}

TEST_F(OpenAiRoutes, GenerateAnswersWhenTheJobIsFinal) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a cat"}, {"n", 2}, {"seed", 7}, {"user", "me"}});
  EXPECT_FALSE(peer->response);
  const Job job = claim();
  EXPECT_EQ(job.kind, "generate");
  EXPECT_EQ(job.client_ref, "me");
  EXPECT_EQ(job.request["prompt"], "a cat");
  complete(job);
  const Json answer = body_of(*peer);
  ASSERT_EQ(answer["data"].size(), 2u);
  EXPECT_EQ(answer["data"][1]["seed"], 8);
  EXPECT_EQ(answer["size"], "64x64");
  EXPECT_EQ(answer["usage"]["total_tokens"], 19);
  EXPECT_EQ(read_image(base64_decode(answer["data"][1]["b64_json"].get<std::string>())).pixels[0], 2);
  EXPECT_FALSE(answer["data"][0].contains("url"));
}

TEST_F(OpenAiRoutes, AClientThatLeavesCancelsItsJob) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a cat"}});
  ASSERT_TRUE(peer->disconnect);
  peer->disconnect();
  EXPECT_TRUE(eventually([&] { return store_->counts("gpu").queued == 0; }));
}

// It is told on an I/O thread, which carries many connections.
TEST_F(OpenAiRoutes, AClientThatLeavesWaitsForNoDatabase) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a cat"}});
  ASSERT_TRUE(peer->disconnect);
  open_sqlite(folder_ / "flux2.db")->writing([&](SqlConnection& sql) {
    sql.run("UPDATE settings SET value = value");  // nobody else may write now
    const auto began = std::chrono::steady_clock::now();
    peer->disconnect();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4)) << "a change waits longer than that";
  });
  EXPECT_TRUE(eventually([&] { return store_->counts("gpu").queued == 0; }));
}

TEST_F(OpenAiRoutes, OnlyFormsMayBeLargerThanMemoryAllows) {
  const auto route = [&](const char* path) { return *router_.find("POST", path).route; };
  EXPECT_EQ(route("/v1/images/edits").body_limit, 64u << 20) << "JSON with images";
  EXPECT_EQ(route("/v1/images/edits").form_limit, 800u << 20);
  EXPECT_EQ(route("/v1/images/variations").body_limit, 1u << 20);
}

TEST_F(OpenAiRoutes, UrlsServeTheImage) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a cat"}, {"response_format", "url"}});
  complete(claim());
  const std::string url = body_of(*peer)["data"][0]["url"];
  ASSERT_THAT(url, testing::StartsWith("http://localhost:1/v1/images/files/"));
  const std::string path = url.substr(std::string("http://localhost:1").size());
  const auto file = get(path);
  EXPECT_EQ(status_of(*file), 200);
  EXPECT_EQ(file->response->content_type, "image/png");
  EXPECT_EQ(read_image(file->response->file).width, 64);
  EXPECT_EQ(code_of(*get("/v1/images/files/nothing.png")), "unknown_url");
}

TEST_F(OpenAiRoutes, FailuresKeepTheirMeaning) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a cat"}});
  Job job = claim();
  job.state = "failed";
  job.error = {{"code", "out_of_memory"}, {"message", "no memory"}, {"hint", ""}};
  end(job);
  EXPECT_EQ(status_of(*peer), 503);
  EXPECT_EQ(code_of(*peer), "out_of_memory");
  EXPECT_THAT(peer->response->headers, testing::Contains(std::pair<std::string, std::string>("x-should-retry", "false")));
}

TEST_F(OpenAiRoutes, ModelsByAnyName) {
  EXPECT_EQ(code_of(*post("/v1/images/generations", {{"prompt", "a"}, {"model", "nobody"}})), "model_not_found");
  EXPECT_EQ(code_of(*post("/v1/images/generations", {{"prompt", "a"}, {"model", "/etc/passwd"}})), "model_not_found");
  post("/v1/images/generations", {{"prompt", "a"}, {"model", "dall-e-3"}});
  EXPECT_FALSE(claim().request.contains("model"));
  api_.alias_openai_models = false;
  EXPECT_EQ(code_of(*post("/v1/images/generations", {{"prompt", "a"}, {"model", "dall-e-3"}})), "model_not_found");
  post("/v1/images/generations", {{"prompt", "a"}, {"model", "pico"}, {"quality", "low"}});
  const Job job = claim();
  EXPECT_EQ(job.request["model"], "pico");
  EXPECT_EQ(job.request["steps"], 20);  // pico is not distilled
}

TEST_F(OpenAiRoutes, NativeProblemsNameMembersOfThisFamily) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a"}, {"flux2", {{"nonsense", 1}}}});
  EXPECT_EQ(status_of(*peer), 400);
  EXPECT_EQ(param_of(*peer), "nonsense");
  EXPECT_EQ(code_of(*peer), "invalid_value");
  EXPECT_EQ(code_of(*post("/v1/images/generations", {{"prompt", "a"}, {"loras", {"nobody"}}})), "not_found");
}

TEST_F(OpenAiRoutes, EditsTakeImagesInTheirOrder) {
  const auto first = encode_png(Image(64, 80, 3)), second = encode_png(Image(96, 64, 3));
  const auto peer = post_form("/v1/images/edits", {file("image[]", first), text("prompt", "x"), file("image[]", second),
                                                   text("flux2[steps]", "2"), text("input_fidelity", "low")});
  const Job job = claim();
  EXPECT_EQ(job.kind, "edit");
  EXPECT_EQ(job.request["steps"], 2);
  EXPECT_EQ(job.request["ref_pixels"], std::to_string(1024 * 1024 / 2));
  ASSERT_EQ(job.request["references"].size(), 2u);
  EXPECT_EQ(assets_.get(job.request["references"][0].get<std::string>().substr(6))->height, 80);
  EXPECT_EQ(assets_.get(job.request["references"][1].get<std::string>().substr(6))->width, 96);
  complete(job);
  EXPECT_EQ(status_of(*peer), 200);
}

TEST_F(OpenAiRoutes, EditsTakeAMask) {
  const auto image = encode_png(Image(64, 80, 3)), mask = encode_png(Image(64, 80, 4)), wrong = encode_png(Image(64, 64, 4));
  post_form("/v1/images/edits",
            {file("image", image), file("image", image), file("mask", mask), text("prompt", "x"), text("size", "512x512")});
  const Job job = claim();
  EXPECT_EQ(job.kind, "inpaint");
  EXPECT_TRUE(job.request.contains("canvas"));
  EXPECT_TRUE(job.request.contains("mask"));
  EXPECT_EQ(job.request["references"].size(), 1u);
  EXPECT_FALSE(job.request.contains("width"));
  const auto peer = post_form("/v1/images/edits", {file("image", image), file("mask", wrong), text("prompt", "x")});
  EXPECT_EQ(code_of(*peer), "invalid_mask_size");
  EXPECT_EQ(param_of(*peer), "mask");
}

TEST_F(OpenAiRoutes, EditErrors) {
  const auto image = encode_png(Image(64, 64, 3));
  EXPECT_EQ(param_of(*post_form("/v1/images/edits", {text("prompt", "x")})), "image");
  const auto broken = post_form("/v1/images/edits", {file("image", image), text("prompt", "x"), text("image", "no image")});
  EXPECT_EQ(code_of(*broken), "invalid_image_file");
  EXPECT_EQ(param_of(*broken), "image");
  EXPECT_THAT(broken->response->body, HasSubstr("image 2"));
  std::vector<FormPart> many(17, file("image[]", image));
  many.push_back(text("prompt", "x"));
  EXPECT_EQ(param_of(*post_form("/v1/images/edits", many)), "image");
  EXPECT_EQ(
      code_of(*ask({.method = "POST", .path = "/v1/images/edits", .headers = {{"content-type", "text/plain"}}, .body = "x"})),
      "invalid_content_type");
  EXPECT_EQ(code_of(*ask({.method = "POST", .path = "/v1/images/generations", .body = "{"})), "invalid_json");
  EXPECT_EQ(code_of(*ask({.method = "POST", .path = "/v1/images/generations", .body = "[]"})), "invalid_json");
  EXPECT_EQ(store_->counts("gpu").queued, 0);
}

TEST_F(OpenAiRoutes, VariationsAreEditsWithAPromptOfOurs) {
  const auto peer = post_form("/v1/images/variations", {file("image", encode_png(Image(64, 64, 3))), text("n", "2")});
  const Job job = claim();
  EXPECT_EQ(job.kind, "edit");
  EXPECT_FALSE(job.request["prompt"].get<std::string>().empty());
  complete(job);
  EXPECT_EQ(body_of(*peer)["data"].size(), 2u);
}

// The previews of a run, as a worker publishes them.
void publish_previews(JobQueue& queue, const Job& job, int steps) {
  const auto jpeg = encode_jpeg(Image(64, 64, 3));
  for (int step = 1; step <= steps; ++step) {
    queue.set_preview(job.id, {.bytes = std::string(reinterpret_cast<const char*>(jpeg.data()), jpeg.size()),
                               .mime = "image/jpeg",
                               .step = step,
                               .width = 64,
                               .height = 64});
    queue.events().publish_progress("preview", {{"job_id", "job_" + job.id}, {"step", step}, {"steps", steps}}, job.id);
  }
}

TEST_F(OpenAiRoutes, StreamsPartialImagesAndTheResult) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a"}, {"stream", true}, {"partial_images", 2}});
  ASSERT_TRUE(peer->channel);
  const Job job = claim();
  EXPECT_EQ(job.request["preview"], Json({{"mode", "full"}, {"count", 2}})) << "no other step is decoded";
  publish_previews(queue_, job, 4);
  complete(job);
  const std::string& sent = peer->channel->sent;
  const size_t first = sent.find("\"partial_image_index\":0"), second = sent.find("\"partial_image_index\":1");
  const size_t last = sent.find("event: image_generation.completed");
  EXPECT_LT(first, second);
  EXPECT_LT(second, last);
  ASSERT_NE(last, std::string::npos);
  EXPECT_EQ(sent.find("\"partial_image_index\":2"), std::string::npos);
  EXPECT_TRUE(peer->channel->closed);
}

TEST_F(OpenAiRoutes, AFailureInAStreamIsAnEvent) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a"}, {"stream", true}});
  Job job = claim();
  job.state = "failed";
  job.error = {{"code", "internal"}, {"message", "why"}, {"hint", ""}};
  end(job);
  EXPECT_THAT(peer->channel->sent, HasSubstr("event: error\n"));
  EXPECT_THAT(peer->channel->sent, HasSubstr("\"type\":\"error\""));
  EXPECT_TRUE(peer->channel->closed);
}

TEST_F(OpenAiRoutes, ClosingAStreamCancelsItsJob) {
  const auto peer = post("/v1/images/generations", {{"prompt", "a"}, {"stream", true}});
  const Job job = claim();
  peer->channel->close();
  EXPECT_TRUE(eventually([&] { return store_->cancel_requested(job.id); }));
}

class FullQueue : public ApiTest {
 protected:
  FullQueue() : ApiTest(1) { add_openai_routes(router_, api_); }
};

TEST_F(FullQueue, IsARateLimit) {
  post("/v1/images/generations", {{"prompt", "a"}});
  const auto peer = post("/v1/images/generations", {{"prompt", "b"}, {"stream", true}});
  EXPECT_EQ(status_of(*peer), 429);
  EXPECT_EQ(body_of(*peer)["error"]["code"], "queue_full");
  EXPECT_EQ(body_of(*peer)["error"]["type"], "rate_limit_error");
  EXPECT_FALSE(peer->channel);
}

}  // namespace
}  // namespace flux2
