#include "server/api/dj.h"

#include <gmock/gmock.h>

#include "base/base64.h"
#include "image/read_image.h"
#include "server/api/dj_request.h"
#include "server/api/test_api.h"

namespace flux2 {
namespace {

class DjRoutes : public ApiTest {
 protected:
  DjRoutes() { add_dj_routes(router_, api_); }

  std::string submit(const Json& body) {
    const auto peer = post("/generate", body);
    EXPECT_EQ(status_of(*peer), 201);
    return body_of(*peer)["token"];
  }
};

TEST_F(DjRoutes, FromSubmissionToResult) {
  const std::string token = submit({{"prompt", "a"}, {"seed", 3}});
  EXPECT_EQ(body_of(*get("/status/" + token))["status"], "queued");
  EXPECT_EQ(body_of(*get("/status/" + token))["queue_position"], 1);
  EXPECT_EQ(status_of(*get("/result/" + token)), 409);
  const Job job = claim();
  EXPECT_EQ(dj_token(job.id), token);
  complete(job);
  EXPECT_EQ(body_of(*get("/status/" + token))["status"], "completed");
  const auto result = get("/result/" + token);
  EXPECT_EQ(result->response->content_type, "image/png");
  EXPECT_EQ(read_image(result->response->file).width, 64);
  EXPECT_EQ(body_of(*get("/queue")).size(), 1u);
}

TEST_F(DjRoutes, ResultsAreEnlargedWhenFetched) {
  const std::string token = submit({{"prompt", "a"}, {"upscale", 4}});
  complete(claim());
  const auto result = get("/result/" + token);
  EXPECT_EQ(read_image(std::as_bytes(std::span(result->response->body))).width, 256);
}

TEST_F(DjRoutes, NetworksMustBeInstalled) {
  const auto refused = post("/generate", {{"prompt", "a"}, {"upscale", 2}, {"upscale_method", "realesrgan"}});
  EXPECT_EQ(status_of(*refused), 400);
  EXPECT_THAT(body_of(*refused)["detail"].get<std::string>(), testing::HasSubstr("models install realesrgan-x4plus"));
}

TEST_F(DjRoutes, ImagesMakeAnEdit) {
  submit({{"prompt", "a"}, {"input_image_base64", {base64_encode(encode_png(Image(64, 64, 3)))}}});
  const Job job = claim();
  EXPECT_EQ(job.kind, "edit");
  EXPECT_EQ(job.request["references"].size(), 1u);
}

TEST_F(DjRoutes, CancelsAndRefuses) {
  const std::string token = submit({{"prompt", "a"}});
  EXPECT_EQ(body_of(*post("/cancel/" + token, Json::object())), Json::parse(R"({"success":true,"message":"Cancelled"})"));
  EXPECT_EQ(status_of(*post("/cancel/" + token, Json::object())), 409);
  EXPECT_EQ(status_of(*get("/status/00000000000000000000000000000000")), 404);
  EXPECT_TRUE(body_of(*post("/generate", {{"prompt", "a"}, {"width", 5000}}))["detail"].is_string());
  EXPECT_EQ(status_of(*post("/generate", {{"prompt", "a"}, {"model", "nobody"}})), 404);
  for (int i = 0; i < 50; ++i) submit({{"prompt", "a"}});
  EXPECT_EQ(status_of(*post("/generate", {{"prompt", "a"}})), 429);
}

// Whoever may only make images could end training and downloads here.
TEST_F(DjRoutes, KnowsImagesAlone) {
  const std::string image = submit({{"prompt", "a"}});
  const auto queued = [&](const char* kind, const char* lane) {
    return queue_.submit({.request = {{"kind", kind}}, .kind = kind, .lane = lane}).job.id;
  };
  for (int i = 0; i < 120; ++i) store_->cancel(queued("rewrite", "gpu"), now_ms());
  const std::string last = submit({{"prompt", "b"}});
  for (const std::string& id :
       {queued("train", "gpu"), queued("download", "net"), queued("verify", "cpu"), queued("rewrite", "gpu")}) {
    EXPECT_EQ(status_of(*get("/status/" + dj_token(id))), 404);
    EXPECT_EQ(status_of(*get("/result/" + dj_token(id))), 404);
    EXPECT_EQ(status_of(*post("/cancel/" + dj_token(id), Json::object())), 404);
    EXPECT_EQ(store_->get(id)->state, "queued");
  }
  const Json listed = body_of(*get("/queue"));
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0]["token"], last);
  EXPECT_EQ(listed[1]["token"], image) << "other jobs do not take its place in the list";
}

TEST_F(DjRoutes, ListsModels) {
  const Json models = body_of(*get("/models"));
  EXPECT_EQ(models["supported"], Json::array({"pico"}));
  EXPECT_TRUE(models["loaded"].is_null());
}

TEST_F(DjRoutes, TheSocketSendsEveryChangeOnce) {
  const std::string token = submit({{"prompt", "a"}});
  const auto channel = std::make_shared<FakePeer::Channel>();
  ServerRequest head{.method = "GET", .path = "/ws/" + token};
  head.captured = {{"token", token}};
  follow_dj_job(api_, head, channel);
  EXPECT_THAT(channel->sent, testing::HasSubstr("\"status\":\"queued\""));
  const Job job = claim();
  const auto progress = [&] { events_.publish_progress("progress", {{"job_id", "job_" + job.id}}, job.id); };
  progress();
  const size_t length = channel->sent.size();
  EXPECT_THAT(channel->sent, testing::HasSubstr("\"status\":\"running\""));
  progress();  // nothing has changed
  EXPECT_EQ(channel->sent.size(), length);
  complete(job);
  EXPECT_THAT(channel->sent, testing::HasSubstr("\"status\":\"completed\""));
  EXPECT_TRUE(channel->closed);
  head.captured = {{"token", "0"}};
  EXPECT_THROW(follow_dj_job(api_, head, channel), HttpError);
}

}  // namespace
}  // namespace flux2
