// The checks of [safety] in a running server: every interface answers with content_policy_violation, and nothing is stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "image/write_image.h"
#include "tests/support/served.h"
#include "tests/support/tiny_classifier.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class ServeSafety : public Served {
 protected:
  void serve(float logit, const std::string& on_flag = "refuse") {
    Start s = start({"serve", "--port", "0", "--data", (folder_ / "data").string()});
    s.environment["FLUX2_SAFETY_IMAGE"] = "nsfw";
    s.environment["FLUX2_SAFETY_NSFW_MODEL"] = write_tiny_classifier(folder_ / "vit", logit).string();
    s.environment["FLUX2_SAFETY_ON_FLAG"] = on_flag;
    listen(s);
  }
  static Json small_job() { return {{"prompt", "a red circle"}, {"width", 64}, {"height", 64}, {"steps", 1}, {"seed", 3}}; }
  // Images, previews and thumbnails that the server keeps.
  size_t stored_images() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "data")) {
      const std::string extension = entry.path().extension().string();
      count += extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".webp" ||
               extension == ".safetensors";
    }
    return count;
  }
};

TEST_F(ServeSafety, EveryInterfaceRefusesInItsOwnShape) {
  serve(kFlagged);
  EXPECT_EQ(ask("GET", "/api/v1/info")["features"]["safety"], true);

  Json native = small_job();
  native["preview"] = "linear";
  const std::string id = ask("POST", "/api/v1/jobs", native)["id"];
  const Json job = wait_for(id);
  EXPECT_EQ(job["state"], "failed");
  EXPECT_EQ(job["error"]["code"], "content_policy_violation");
  EXPECT_THAT(job["error"]["message"].get<std::string>(), HasSubstr("refused by the safety check"));
  EXPECT_TRUE(job["images"].empty());
  EXPECT_EQ(send("GET", "/api/v1/jobs/" + id + "/images/0").status, 404);
  EXPECT_EQ(send("GET", "/api/v1/jobs/" + id + "/preview").status, 204) << "no content";

  const HttpAnswer openai = send("POST", "/v1/images/generations", {{"prompt", "a red circle"}, {"size", "64x64"}, {"steps", 1}});
  EXPECT_EQ(openai.status, 400);
  const Json error = parse_json(openai.body)["error"];
  EXPECT_EQ(error["code"], "content_policy_violation");
  EXPECT_EQ(error["type"], "invalid_request_error");

  const HttpAnswer sdapi =
      send("POST", "/sdapi/v1/txt2img", {{"prompt", "a red circle"}, {"width", 64}, {"height", 64}, {"steps", 1}});
  EXPECT_EQ(sdapi.status, 400);
  EXPECT_EQ(parse_json(sdapi.body)["error"], "content_policy_violation");

  const std::string token =
      ask("POST", "/generate", {{"prompt", "a red circle"}, {"width", 64}, {"height", 64}, {"steps", 1}})["token"];
  const Json dj = wait_until(
      "/status/" + token, [](const Json& now) { return now["status"] == "failed"; }, 60);
  EXPECT_THAT(dj["error"].get<std::string>(), HasSubstr("content_policy_violation"));
  const HttpAnswer result = send("GET", "/result/" + token);
  EXPECT_EQ(result.status, 400);
  EXPECT_THAT(parse_json(result.body)["detail"].get<std::string>(), HasSubstr("content_policy_violation"));

  EXPECT_EQ(stored_images(), 0u) << "no image, no preview, no latents";

  // A stream of the OpenAI family: no partial images, then the error.
  const HttpAnswer stream =
      send("POST", "/v1/images/generations",
           {{"prompt", "a red circle"}, {"size", "64x64"}, {"steps", 2}, {"stream", true}, {"partial_images", 2}});
  EXPECT_THAT(stream.body, HasSubstr("content_policy_violation"));
  EXPECT_THAT(stream.body, testing::Not(HasSubstr("b64_json")));

  // References are refused before anything runs.
  Json edit = small_job();
  const auto png = encode_png(Image(64, 64, 3));
  edit["kind"] = "edit";
  edit["references"] = {base64_encode(png)};
  const Json refused = wait_for(ask("POST", "/api/v1/jobs", edit)["id"]);
  EXPECT_EQ(refused["error"]["code"], "content_policy_violation");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("reference image 1"));
  EXPECT_EQ(refused["step"], 0);
  stop();
}

TEST_F(ServeSafety, ModerationLowRaisesTheThreshold) {
  serve(2.3f);  // a score of 0.909
  Json job = small_job();
  EXPECT_EQ(wait_for(ask("POST", "/api/v1/jobs", job)["id"])["state"], "failed");
  job["moderation"] = "low";
  EXPECT_EQ(wait_for(ask("POST", "/api/v1/jobs", job)["id"])["state"], "completed");
  const Json body = {{"prompt", "a red circle"}, {"size", "64x64"}, {"steps", 1}};
  EXPECT_EQ(send("POST", "/v1/images/generations", body).status, 400);
  Json low = body;
  low["moderation"] = "low";
  EXPECT_EQ(send("POST", "/v1/images/generations", low).status, 200);
  const Json settings = ask("GET", "/api/v1/settings");
  EXPECT_EQ(settings["safety.image"]["value"], "nsfw");
  EXPECT_EQ(settings["safety.image"]["origin"], "env");
  stop();
}

TEST_F(ServeSafety, ABlurredImageIsAResultWithAWarning) {
  serve(kFlagged, "blur");
  const Json job = wait_for(ask("POST", "/api/v1/jobs", small_job())["id"]);
  EXPECT_EQ(job["state"], "completed");
  EXPECT_THAT(job["warnings"].dump(), HasSubstr("blurred"));
  stop();
}

}  // namespace
}  // namespace flux2::test
