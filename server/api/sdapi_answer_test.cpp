#include "server/api/sdapi_answer.h"

#include <gmock/gmock.h>

#include "image/write_image.h"
#include "record/picture_metadata.h"

namespace flux2 {
namespace {

std::vector<std::byte> png_of_record(const GenerationRecord& record) {
  return encode_png(Image(64, 32, 3), picture_metadata(record, {}, ImageFormat::Png));
}

GenerationRecord record_of_fox() {
  GenerationRecord record;
  record.request.prompt = "a fox";
  record.request.negative = "rain";
  record.request.seed = 5;
  record.request.steps = 4;
  record.request.width = 64;
  record.request.height = 32;
  record.model = "pico";
  return record;
}

TEST(SdapiAnswer, PngInfoReadsOurOwnImages) {
  const Json info = sdapi_png_info(png_of_record(record_of_fox()), {});
  EXPECT_THAT(info["info"].get<std::string>(), testing::StartsWith("a fox\n"));
  EXPECT_EQ(info["parameters"]["Prompt"], "a fox");
  EXPECT_EQ(info["parameters"]["Negative prompt"], "rain");
  EXPECT_EQ(info["parameters"]["Seed"], "5");
  EXPECT_EQ(info["parameters"]["Size-1"], "64");
  EXPECT_EQ(info["parameters"]["Size-2"], "32");
  EXPECT_TRUE(info["items"].contains("parameters"));
  EXPECT_TRUE(info["items"].contains("flux2"));
}

TEST(SdapiAnswer, PngInfoOfAnImageWithoutSettingsIsEmpty) {
  const Json info = sdapi_png_info(encode_png(Image(8, 8, 3)), {});
  EXPECT_EQ(info["info"], "");
  EXPECT_TRUE(info["parameters"].empty());
  EXPECT_ANY_THROW(sdapi_png_info(std::as_bytes(std::span("no image", 8)), {}));
}

TEST(SdapiAnswer, InfoHasEveryMember) {
  SdapiRequest request;
  request.native = {{"prompt", "a fox"}};
  request.batch_size = 2;
  request.model_hash = "0123456789";
  Job job;
  job.resolved = Json::parse(R"({"model":{"id":"pico"},"sampler":"heun","steps":4,"guidance":3.5})");
  job.images = {{.index = 0, .asset = "x", .seed = 5, .width = 64, .height = 32},
                {.index = 1, .asset = "y", .seed = 6, .width = 64, .height = 32}};
  const Json info = sdapi_info(request, job, {"one", "two"});
  for (const char* name : {"prompt",
                           "all_prompts",
                           "negative_prompt",
                           "all_negative_prompts",
                           "seed",
                           "all_seeds",
                           "subseed",
                           "all_subseeds",
                           "subseed_strength",
                           "width",
                           "height",
                           "sampler_name",
                           "cfg_scale",
                           "steps",
                           "batch_size",
                           "restore_faces",
                           "face_restoration_model",
                           "sd_model_name",
                           "sd_model_hash",
                           "sd_vae_name",
                           "sd_vae_hash",
                           "seed_resize_from_w",
                           "seed_resize_from_h",
                           "denoising_strength",
                           "extra_generation_params",
                           "index_of_first_image",
                           "infotexts",
                           "styles",
                           "job_timestamp",
                           "clip_skip",
                           "is_using_inpainting_conditioning",
                           "version"})
    EXPECT_TRUE(info.contains(name)) << name;
  EXPECT_EQ(info["all_seeds"], Json::array({5, 6}));
  EXPECT_EQ(info["sampler_name"], "Heun");
  EXPECT_EQ(info["sd_model_hash"], "0123456789");
  EXPECT_EQ(info["infotexts"], Json::array({"one", "two"}));
  EXPECT_EQ(info["cfg_scale"], 3.5);
}

TEST(SdapiAnswer, ProgressIsExactlyZeroWhenIdle) {
  const Json idle = sdapi_progress(nullptr, false, false, nullptr, 0);
  EXPECT_EQ(idle["progress"], 0);
  EXPECT_EQ(idle["state"]["job_count"], 0);
  EXPECT_TRUE(idle["current_image"].is_null());
  const Json loading = sdapi_progress(nullptr, true, false, nullptr, 0);
  EXPECT_EQ(loading["state"]["job_count"], 1);
  EXPECT_EQ(loading["state"]["job"], "loading");
}

TEST(SdapiAnswer, ProgressOfAJob) {
  Job job;
  job.state = "running";
  job.progress = 0.5;
  job.started = 1000;
  job.step = 2;
  job.steps = 4;
  job.client_ref = "task";
  const JobQueue::Preview preview{.bytes = "abc"};
  const Json json = sdapi_progress(&job, false, false, &preview, 3000);
  EXPECT_EQ(json["progress"], 0.5);
  EXPECT_EQ(json["eta_relative"], 2.0);
  EXPECT_EQ(json["state"]["job"], "task");
  EXPECT_EQ(json["state"]["sampling_step"], 2);
  EXPECT_EQ(json["current_image"], "YWJj");
  job.state = "queued", job.progress = 0;
  EXPECT_GT(sdapi_progress(&job, false, false, nullptr, 0)["progress"].get<double>(), 0);
}

TEST(SdapiAnswer, ResizesInThreeWays) {
  Image image(4, 2, 3);
  for (int x = 0; x < 4; ++x)
    for (int y = 0; y < 2; ++y) image.at(x, y)[0] = static_cast<uint8_t>(x * 80);
  for (const int64_t mode : {0, 1, 2}) {
    const Image resized = sdapi_resized(image, 8, 8, mode);
    EXPECT_EQ(resized.width, 8);
    EXPECT_EQ(resized.height, 8);
  }
  EXPECT_EQ(sdapi_resized(image, 4, 2, 1), image);
  const Image filled = sdapi_resized(image, 4, 6, 2);  // two rows above and below repeat the border
  EXPECT_EQ(filled.at(3, 0)[0], image.at(3, 0)[0]);
  EXPECT_EQ(filled.at(0, 5)[0], image.at(0, 1)[0]);
}

TEST(SdapiAnswer, OpaquePartsOfATransparentMaskAreRegenerated) {
  Image mask(2, 1, 4);
  mask.at(0, 0)[3] = 255;
  EXPECT_EQ(*sdapi_mask(mask).at(0, 0), 255);
  EXPECT_EQ(*sdapi_mask(mask).at(1, 0), 0);
  Image white(1, 1, 3);
  white.pixels = {255, 255, 255};
  EXPECT_EQ(*sdapi_mask(white).at(0, 0), 255);
}

}  // namespace
}  // namespace flux2
