#include "server/api/sdapi.h"

#include <gmock/gmock.h>

#include "base/base64.h"
#include "image/mask.h"
#include "image/read_image.h"
#include "server/api/test_api.h"

namespace flux2 {
namespace {

class SdapiApi : public ApiTest {
 protected:
  SdapiApi() { add_sdapi_routes(router_, api_); }

  Json got(const std::string& path) { return body_of(*get("/sdapi/v1" + path)); }
  std::shared_ptr<FakePeer> send(const std::string& path, const Json& body) { return post("/sdapi/v1" + path, body); }
  static std::string png64(int width, int height, int channels = 3) {
    return base64_encode(encode_png(Image(width, height, channels)));
  }
  Image stored(const Json& reference) {
    return read_image(assets_.path_of(*assets_.get(reference.get<std::string>().substr(6))));
  }
};

TEST_F(SdapiApi, ListsAreWellFormed) {
  const Json models = got("/sd-models");
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["model_name"], "pico");
  EXPECT_EQ(models[0]["hash"].get<std::string>().size(), 10u);
  EXPECT_EQ(models[0]["title"], "pico [" + models[0]["hash"].get<std::string>() + "]");
  EXPECT_EQ(got("/samplers").size(), 3u);
  EXPECT_EQ(got("/schedulers")[0]["name"], "flux2");
  EXPECT_EQ(got("/loras"), Json::array());
  EXPECT_EQ(got("/embeddings"), Json::parse(R"({"loaded":{},"skipped":{}})"));
  EXPECT_GT(got("/memory")["ram"]["total"].get<int64_t>(), 0);
}

TEST_F(SdapiApi, OptionsChooseTheModel) {
  const std::string title = got("/sd-models")[0]["title"];
  EXPECT_EQ(got("/options")["sd_model_checkpoint"], title);
  std::string loading;
  api_.load_model = [&](const std::string& name) { loading = name; };
  const auto peer = send("/options", {{"sd_model_checkpoint", title}, {"mine", 1}});
  EXPECT_EQ(peer->response->body, "null");
  EXPECT_EQ(loading, "pico");
  EXPECT_EQ(got("/options")["mine"], 1);
  EXPECT_EQ(status_of(*send("/options", {{"sd_model_checkpoint", "nobody"}})), 404);
  send("/txt2img", {{"prompt", "a"}});
  EXPECT_EQ(claim().request["model"], "pico");
}

TEST_F(SdapiApi, Txt2imgAnswersWithImagesAndInfo) {
  const auto peer = send("/txt2img", {{"prompt", "a"}, {"batch_size", 2}, {"seed", 4}, {"unknown", 1}, {"cfg_scale", 3}});
  const Job job = claim();
  EXPECT_EQ(job.kind, "generate");
  EXPECT_EQ(job.request["guidance"], 3);
  complete(job);
  const Json answer = body_of(*peer);
  EXPECT_EQ(answer["images"].size(), 2u);
  EXPECT_EQ(answer["parameters"]["unknown"], 1);
  EXPECT_EQ(Json::parse(answer["info"].get<std::string>())["all_seeds"], Json::array({4, 5}));
}

TEST_F(SdapiApi, InterruptReturnsWhatIsFinished) {
  const auto peer = send("/txt2img", {{"prompt", "a"}, {"force_task_id", "t"}});
  Job job = claim();
  EXPECT_EQ(got("/progress")["state"]["job"], "t");
  EXPECT_EQ(send("/interrupt", Json::object())->response->body, "{}");
  EXPECT_TRUE(store_->cancel_requested(job.id));
  job.state = "cancelled";
  end(job);
  EXPECT_EQ(status_of(*peer), 200);
  EXPECT_EQ(body_of(*peer)["images"], Json::array());
  EXPECT_EQ(got("/progress")["progress"], 0);
  EXPECT_EQ(got("/progress")["state"]["job_count"], 0);
}

TEST_F(SdapiApi, SkipGoesOnWithTheNextBatchIfThereIsOne) {
  send("/txt2img", {{"prompt", "a"}, {"n_iter", 2}});
  Job job = claim();
  EXPECT_EQ(job.request["rounds"], 2);
  EXPECT_EQ(send("/skip", Json::object())->response->body, "{}");
  EXPECT_TRUE(queue_.skip_noted(job.id));
  EXPECT_FALSE(store_->cancel_requested(job.id));
  complete(job);
  EXPECT_FALSE(queue_.skip_noted(job.id)) << "the job has ended";

  send("/txt2img", {{"prompt", "a"}, {"batch_size", 2}});
  job = claim();
  send("/skip", Json::object());
  EXPECT_TRUE(store_->cancel_requested(job.id)) << "nothing follows";
  job.state = "cancelled";
  end(job);
}

TEST_F(SdapiApi, Img2imgIsAnEdit) {
  send("/img2img", {{"prompt", "a"}, {"init_images", {png64(64, 80), png64(80, 64)}}, {"denoising_strength", 0.3}});
  const Job job = claim();
  EXPECT_EQ(job.kind, "edit");
  EXPECT_EQ(job.request["references"].size(), 2u);
  EXPECT_FALSE(job.request.contains("strength"));
  api_.sdapi_img2img = ApiContext::Img2Img::Strength;
  send("/img2img",
       {{"prompt", "a"}, {"init_images", {png64(64, 80)}}, {"denoising_strength", 0.3}, {"width", 128}, {"height", 128}});
  const Job second = claim();
  EXPECT_EQ(second.request["strength"], 0.3);
  EXPECT_EQ(stored(second.request["references"][0]).width, 128);
}

TEST_F(SdapiApi, AMaskMakesAnInpaint) {
  Image mask(64, 80, 1);
  add_box(mask, {8, 8, 16, 16});
  send("/img2img", {{"prompt", "a"},
                    {"init_images", {png64(64, 80)}},
                    {"mask", base64_encode(encode_png(mask))},
                    {"width", 128},
                    {"height", 160}});
  const Job job = claim();
  EXPECT_EQ(job.kind, "inpaint");
  EXPECT_EQ(stored(job.request["canvas"]).width, 128);
  EXPECT_EQ(stored(job.request["mask"]).height, 160);
  EXPECT_GT(*stored(job.request["mask"]).at(32, 32), 200);
  EXPECT_EQ(job.request["strength"], 0.75);
  EXPECT_FALSE(job.request.contains("width"));
}

TEST_F(SdapiApi, ErrorsHaveTheShapeOfTheFamily) {
  const auto peer = send("/img2img", {{"prompt", "a"}});
  EXPECT_EQ(status_of(*peer), 404);
  EXPECT_EQ(body_of(*peer)["detail"], "Init image not found");
  EXPECT_EQ(status_of(*send("/img2img", {{"init_images", {"!!"}}})), 400);
  EXPECT_EQ(status_of(*send("/txt2img", {{"prompt", "a"}, {"override_settings", {{"sd_model_checkpoint", "nobody"}}}})), 404);
  const auto failed = send("/txt2img", {{"prompt", "a"}});
  Job job = claim();
  job.state = "failed";
  job.error = {{"code", "out_of_memory"}, {"message", "no memory"}, {"hint", ""}};
  end(job);
  EXPECT_EQ(status_of(*failed), 500);
}

TEST_F(SdapiApi, UpscalesImages) {
  const auto size_of = [](const Json& image) {
    const Image decoded = read_image(base64_decode(image.get<std::string>()));
    return std::pair(decoded.width, decoded.height);
  };
  EXPECT_EQ(size_of(body_of(*send("/extra-single-image", {{"image", png64(10, 20)}, {"upscaling_resize", 1.5}}))["image"]),
            std::pair(15, 30));
  EXPECT_EQ(size_of(body_of(*send(
                "/extra-single-image",
                {{"image", png64(10, 20)}, {"resize_mode", 1}, {"upscaling_resize_w", 8}, {"upscaling_resize_h", 8}}))["image"]),
            std::pair(8, 8));
  EXPECT_EQ(status_of(*send("/extra-single-image", {{"image", png64(2000, 2000)}, {"upscaling_resize", 16}})), 422);
  EXPECT_EQ(status_of(*send("/extra-single-image", {{"image", png64(9, 9)}, {"upscaler_1", "magic"}})), 422);
  EXPECT_EQ(status_of(*send("/png-info", {{"image", "AAAA"}})), 400);
  EXPECT_EQ(body_of(*send("/png-info", {{"image", png64(9, 9)}}))["info"], "");
}

}  // namespace
}  // namespace flux2
