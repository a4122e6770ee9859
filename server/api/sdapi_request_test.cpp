#include "server/api/sdapi_request.h"

#include <gmock/gmock.h>

#include "server/http/errors.h"

namespace flux2 {
namespace {

template <class F>
std::string sdapi_failure(F&& call) {
  try {
    call();
  } catch (const HttpError& e) {
    return std::to_string(e.status) + " " + e.param;
  }
  return "no error";
}

SdapiRequest txt2img(const char* text) { return parse_sdapi_request(Json::parse(text), false); }
SdapiRequest img2img(const char* text) { return parse_sdapi_request(Json::parse(text), true); }

TEST(SdapiRequest, TranslatesTxt2img) {
  const SdapiRequest r =
      txt2img(R"({"prompt":"a <lora:style:0.5> cat","negative_prompt":"dog","seed":7,"steps":"12","cfg_scale":4,
    "width":500,"height":300,"batch_size":2,"n_iter":3,"sampler_name":"DPM++ 2M Karras","scheduler":"linear",
    "override_settings":{"sd_model_checkpoint":"pico [0123456789]","samples_format":"jpg"},"send_images":false,
    "force_task_id":"t1","lora":[{"path":"loras/b.safetensors","multiplier":0.3}],"extra_images":["AAAA"],
    "styles":["x"],"eta":1,"s_churn":0,"restore_faces":true,"alwayson_scripts":{}})");
  EXPECT_EQ(r.native["negative"], "dog");
  EXPECT_EQ(r.native["seed"], 7);
  EXPECT_EQ(r.native["steps"], 12);
  EXPECT_EQ(r.native["width"], 496);
  EXPECT_EQ(r.native["height"], 304);
  EXPECT_EQ(r.native["count"], 6);
  EXPECT_EQ(r.native["rounds"], 3);
  EXPECT_EQ(r.native["sampler"], "dpmpp2m");
  EXPECT_EQ(r.native["schedule"], "linear");
  EXPECT_EQ(r.native["output_format"], "jpg");
  EXPECT_EQ(r.native["loras"], Json::parse(R"([{"name":"style","weight":0.5},{"name":"b","weight":0.3}])"));
  EXPECT_EQ(r.native["prompt"].get<std::string>().find("<lora"), std::string::npos);
  EXPECT_EQ(r.model, "pico [0123456789]");
  EXPECT_EQ(r.task_id, "t1");
  EXPECT_FALSE(r.send_images);
  EXPECT_EQ(r.references, std::vector<std::string>{"AAAA"});
  EXPECT_EQ(*r.cfg_scale, 4);
}

TEST(SdapiRequest, APromptIsEnough) {
  const SdapiRequest r = txt2img(R"({"prompt":"a"})");
  EXPECT_EQ(r.native, Json::parse(R"({"prompt":"a","count":1,"save":false})"));
  EXPECT_FALSE(r.has_size);
}

TEST(SdapiRequest, ImagesAreKeptOnRequest) {
  EXPECT_EQ(txt2img(R"({"save_images":true})").native["save"], true);
  EXPECT_EQ(txt2img(R"({"save_images":false})").native["save"], false);
}

TEST(SdapiRequest, SubseedsAreVariations) {
  EXPECT_EQ(txt2img(R"({"subseed":9,"subseed_strength":0.25,"tiling":true})").native["variation"], "9:0.25");
  EXPECT_EQ(txt2img(R"({"tiling":true})").native["tile"], "both");
  EXPECT_FALSE(txt2img(R"({"subseed":9,"subseed_strength":0})").native.contains("variation"));
  EXPECT_TRUE(txt2img(R"({"subseed":-1,"subseed_strength":0.5})").native.contains("variation")) << "of a random seed";
}

TEST(SdapiRequest, ExplicitMembersWinOverTheInfotext) {
  const SdapiRequest r = txt2img(
      R"({"infotext":"a fox\nNegative prompt: rain\nSteps: 9, Sampler: Heun, CFG scale: 3, Distilled CFG Scale: 2, Seed: 5, Size: 256x128","steps":4})");
  EXPECT_EQ(r.native["prompt"], "a fox");
  EXPECT_EQ(r.native["negative"], "rain");
  EXPECT_EQ(r.native["seed"], 5);
  EXPECT_EQ(r.native["steps"], 4);
  EXPECT_EQ(r.native["width"], 256);
  EXPECT_EQ(r.cfg_scale, 3);
  EXPECT_EQ(r.distilled_cfg_scale, 2);
}

TEST(SdapiRequest, TranslatesAMask) {
  const SdapiRequest r = img2img(R"({"prompt":"a","init_images":["C","R"],"mask":"M","mask_blur":6,"inpainting_mask_invert":1,
    "inpaint_full_res":true,"inpaint_full_res_padding":16,"denoising_strength":0.6,"resize_mode":1})");
  EXPECT_EQ(r.native["feather"], 6);
  EXPECT_EQ(r.native["mask_invert"], true);
  EXPECT_EQ(r.native["crop"], "16");
  EXPECT_EQ(r.native["strength"], 0.6);
  EXPECT_EQ(r.init_images, (std::vector<std::string>{"C", "R"}));
  EXPECT_EQ(r.resize_mode, 1);
  EXPECT_EQ(img2img(R"({"init_images":["C"],"mask":"M","inpainting_fill":2})").native["strength"], 1.0);
  EXPECT_EQ(img2img(R"({"init_images":["C"],"mask":"M"})").native["strength"], 0.75);
  EXPECT_EQ(img2img(R"({"init_images":["C"],"mask":"M","inpaint_full_res":false})").native["crop"], "off");
  EXPECT_FALSE(img2img(R"({"init_images":["C"],"denoising_strength":0.3})").native.contains("strength"));
}

TEST(SdapiRequest, ErrorsNameTheMember) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"steps":"many"})", "422 steps"},
      {R"({"steps":0})", "422 steps"},
      {R"({"steps":2.5})", "422 steps"},
      {R"({"prompt":5})", "422 prompt"},
      {R"({"width":10})", "422 width"},
      {R"({"width":100000,"height":64})", "422 width"},
      {R"({"batch_size":1000,"n_iter":1000})", "422 n_iter"},
      {R"({"tiling":"often"})", "422 tiling"},
      {R"({"subseed":1,"subseed_strength":2})", "422 subseed_strength"},
      {R"({"enable_hr":true,"hr_scale":9})", "422 hr_scale"},
      {R"({"enable_hr":true,"hr_resize_x":512})", "422 hr_resize_x"},
      {R"({"enable_hr":true,"steps":4,"hr_second_pass_steps":9})", "422 hr_second_pass_steps"},
      {R"({"extra_images":"A"})", "422 extra_images"},
      {R"({"override_settings":{"samples_format":"gif"}})", "422 samples_format"},
      {R"({"override_settings":{"sd_vae":"other"}})", "422 sd_vae"},
      {R"({"lora":[{}]})", "422 lora"},
      {R"({"send_images":"maybe"})", "422 send_images"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(sdapi_failure([&] { txt2img(text); }), expected) << text;
  EXPECT_EQ(sdapi_failure([] { img2img(R"({"prompt":"a"})"); }), "404 init_images");
  EXPECT_EQ(sdapi_failure([] { img2img(R"({"init_images":[]})"); }), "404 init_images");
}

TEST(SdapiRequest, TheModelDecidesGuidanceAndSteps) {
  ModelFiles distilled, dev, base;
  dev.distilled = base.distilled = false;
  dev.defaults.guidance_kind = ModelDefaults::Embedded;
  base.defaults.guidance_kind = ModelDefaults::TrueCfg;
  const SdapiRequest asked = txt2img(R"({"prompt":"a","steps":20,"cfg_scale":7,"distilled_cfg_scale":3.5})");
  SdapiRequest r = asked;
  apply_sdapi_model_rules(r, distilled, 8);
  EXPECT_EQ(r.native["steps"], 8);
  EXPECT_FALSE(r.native.contains("guidance"));
  r = asked;
  apply_sdapi_model_rules(r, dev, 8);
  EXPECT_EQ(r.native["steps"], 20);
  EXPECT_EQ(r.native["guidance"], 3.5);
  r = asked;
  apply_sdapi_model_rules(r, base, 8);
  EXPECT_EQ(r.native["guidance"], 7);
}

TEST(SdapiRequest, NamesOfSamplersAndSchedules) {
  EXPECT_EQ(sampler_of_sdapi("Euler a"), "euler");
  EXPECT_EQ(sampler_of_sdapi("DPM++ 2M SDE"), "euler");
  EXPECT_EQ(sampler_of_sdapi("Heun"), "heun");
  for (const char* sampler : {"euler", "heun", "dpmpp2m"}) EXPECT_EQ(sampler_of_sdapi(sdapi_sampler_name(sampler)), sampler);
  EXPECT_EQ(schedule_of_sdapi("automatic"), "");
  EXPECT_EQ(schedule_of_sdapi("FLUX.2"), "model");
}

TEST(SdapiRequest, ImagesAreRepeatedOnlyWhenAsked) {
  const Json body = Json::parse(R"({"init_images":["C"],"mask":"M","unknown":1})");
  SdapiRequest r = parse_sdapi_request(body, true);
  EXPECT_EQ(sdapi_parameters(body, r), Json::parse(R"({"init_images":null,"mask":null,"unknown":1})"));
  r.include_init_images = true;
  EXPECT_EQ(sdapi_parameters(body, r), body);
}

TEST(SdapiRequests, HiresIsTheSecondPass) {
  const auto native = [](const char* text) { return parse_sdapi_request(Json::parse(text), false).native; };
  const Json image =
      native(R"({"prompt":"x","enable_hr":true,"hr_scale":1.5,"denoising_strength":0.4,"hr_upscaler":"R-ESRGAN 4x+"})");
  EXPECT_EQ(image["hires"], 1.5);
  EXPECT_EQ(image["hires_strength"], 0.4);
  EXPECT_FALSE(image.contains("hires_method"));
  EXPECT_EQ(native(R"({"prompt":"x","enable_hr":true,"hr_upscaler":"Latent"})")["hires_method"], "latents");
  EXPECT_FALSE(native(R"({"prompt":"x","hr_scale":2})").contains("hires"));
}

}  // namespace
}  // namespace flux2
