#include "server/jobs/job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "image/write_image.h"
#include "server/http/errors.h"
#include "server/jobs/client_request.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/merge_key.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class JobRequest : public testing::Test {
 protected:
  JobRequest() { context_.limits = Limits::for_server(); }

  Json check(const Json& request, const std::string& kind = "generate") {
    warnings_.clear();
    return check_job_request(request, kind, assets_, context_, warnings_);
  }
  HttpError refusal_of(const Json& request, const std::string& kind = "generate") {
    try {
      check(request, kind);
    } catch (const HttpError& e) {
      return e;
    }
    ADD_FAILURE() << "accepted: " << request.dump();
    return HttpError(0, "", "");
  }
  SettingLayer settings(const Json& request) { return settings_of_job(request, assets_, context_); }

  static std::string png(uint8_t value = 0) {
    Image image(64, 64, 3);
    image.pixels[0] = value;
    return base64_encode(encode_png(image));
  }

  AssetStore assets_{server_test_folder()};
  AppContext context_;
  std::vector<std::string> warnings_;
};

TEST_F(JobRequest, AnImageThatWasDeletedMeanwhileIsNamed) {
  const Json checked = check({{"prompt", "a fox"}, {"references", {png(1), png(2)}}}, "edit");
  const std::string text = checked["references"][1];
  EXPECT_NO_THROW(settings(checked));
  const auto refused = [&]() -> std::string {
    try {
      settings(checked);
    } catch (const HttpError& e) {  // not the error of a model that is missing
      EXPECT_EQ(e.code, "invalid_image_file");
      EXPECT_EQ(e.status, 400);
      return e.what();
    }
    return "accepted";
  };
  std::filesystem::remove(assets_.path_of(*assets_.get(text.substr(6))));
  EXPECT_THAT(refused(), HasSubstr(text)) << "the file alone";
  assets_.remove(text.substr(6));
  EXPECT_THAT(refused(), HasSubstr(text));
}

TEST_F(JobRequest, RegionsBecomeSettings) {
  const Json region = {{"prompt", "a cat"}, {"box", {0, 0, 32, 64}}, {"references", {png(1)}}};
  const Json checked = check({{"prompt", "a field"}, {"regions", {region, {{"prompt", "a dog"}, {"mask", png(2)}}}}});
  EXPECT_THAT(checked["regions"][1]["mask"].get<std::string>(), HasSubstr("asset:"));
  EXPECT_THAT(checked["regions"][0]["references"][0].get<std::string>(), HasSubstr("asset:"));
  const SettingLayer layer = settings(checked);
  EXPECT_EQ(layer.at("region").values, (std::vector<std::string>{"a cat@0,0,32,64", "a dog"}));
  ASSERT_EQ(layer.at("region-mask").values.size(), 1u);
  ASSERT_EQ(layer.at("region-reference").values.size(), 1u);
  EXPECT_EQ(layer.at("region-reference").values[0].substr(0, 2), "1:");
  EXPECT_EQ(merge_key_of(checked), "") << "requests with regions run alone";
  // A client writes them in the same form.
  RequestSpec spec;
  spec.prompt = "a field";
  spec.region = layer.at("region").values;
  spec.region_mask = {"m.png"};
  spec.region_reference = {"1:r.png"};
  std::vector<std::string> left_out;
  const Json sent = job_request_of(
      spec, "generate", [](const std::string& path) { return "<" + path + ">"; }, left_out);
  EXPECT_TRUE(left_out.empty());
  EXPECT_EQ(sent["regions"], Json::parse(R"([{"prompt":"a cat","box":[0,0,32,64],"references":["<r.png>"]},
                                             {"prompt":"a dog","mask":"<m.png>"}])"));
  const auto problem = [&](const Json& one) { return std::string(refusal_of({{"prompt", "x"}, {"regions", {one}}}).what()); };
  EXPECT_THAT(problem({{"prompt", "a"}}), HasSubstr("either \"box\" or \"mask\""));
  EXPECT_THAT(problem({{"prompt", "a"}, {"box", {0, 0, 0, 4}}}), HasSubstr("is not a box"));
  EXPECT_THAT(problem({{"prompt", "a"}, {"box", {0, 0, 8, 8}}, {"weight", 1}}), HasSubstr("no member \"weight\""));
  EXPECT_THAT(problem({{"box", {0, 0, 8, 8}}}), HasSubstr("prompt"));
}

TEST_F(JobRequest, ImagePromptsBecomeSettings) {
  const Json first = {{"image", png(1)}, {"strength", 0.5}, {"from", 0}, {"to", 0.75}};
  const Json checked = check({{"prompt", "a field"}, {"image_prompts", {first, {{"image", png(2)}, {"to", nullptr}}}}});
  EXPECT_THAT(checked["image_prompts"][1]["image"].get<std::string>(), HasSubstr("asset:"));
  const SettingLayer layer = settings(checked);
  ASSERT_EQ(layer.at("image-prompt").values.size(), 2u);
  EXPECT_THAT(layer.at("image-prompt").values[0], testing::EndsWith(":0.5:0-0.75"));
  EXPECT_THAT(layer.at("image-prompt").values[1], testing::EndsWith(":1"));
  EXPECT_EQ(merge_key_of(checked), "") << "requests with image prompts run alone";
  // A client writes them in the same form.
  RequestSpec spec;
  spec.prompt = "a field";
  spec.image_prompt = {"a.png:0.5:0-0.75", "b.png"};
  spec.image_prompt_adapter = "colours";
  std::vector<std::string> left_out;
  const Json sent = job_request_of(
      spec, "generate", [](const std::string& path) { return "<" + path + ">"; }, left_out);
  EXPECT_TRUE(left_out.empty());
  EXPECT_EQ(sent["image_prompts"],
            Json::parse(R"([{"image":"<a.png>","strength":0.5,"to":0.75},{"image":"<b.png>","strength":1.0}])"));
  EXPECT_EQ(sent["image_prompt_adapter"], "colours");

  const auto problem = [&](const Json& one) {
    return std::string(refusal_of({{"prompt", "x"}, {"image_prompts", {one}}}).what());
  };
  EXPECT_THAT(problem({{"strength", 1}}), HasSubstr("\"image\""));
  EXPECT_THAT(problem({{"image", png()}, {"strength", 3}}), HasSubstr("a number from 0 to 2"));
  EXPECT_THAT(problem({{"image", png()}, {"from", 0.5}, {"to", 0.25}}), HasSubstr("not from 0.5 to 0.25"));
  EXPECT_THAT(problem({{"image", png()}, {"weight", 1}}), HasSubstr("no member \"weight\""));
  EXPECT_THAT(problem({{"image", png()}, {"strength", "much"}}), HasSubstr("\"strength\" must be a number"));
  EXPECT_THAT(problem({{"image", "no image"}}), HasSubstr("image_prompts[0].image"));
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"image_prompts", Json::array()}}).fields.size(), 1u);
  for (const char* member : {"image_prompt_adapter", "image_prompt_encoder"}) {
    EXPECT_EQ(refusal_of({{"prompt", "x"}, {member, "../secret"}}).fields.size(), 1u) << member;
    EXPECT_THROW(settings(check({{"prompt", "x"}, {member, "unknown"}})), Error) << member;
  }
}

TEST_F(JobRequest, AcceptsThePublishedFormWithEveryMember) {
  const Json request = Json::parse(R"({"kind":"generate","project_id":null,"prompt":"a fox","negative":"","model":null,
   "width":1024,"height":1024,"match":null,"count":1,"seed":-1,"steps":null,"guidance":null,"cfg":null,
   "references":[],"elements":[],"scan_triggers":true,
   "canvas":null,"mask":null,"mask_invert":false,"grow":8,"feather":8,"strength":1.0,"crop":"auto","context":"refs","extend":null,"align":true,
   "loras":[],"sampler":"euler","schedule":"model","sigmas":null,"noise":"torch-cpu",
   "profile":"fast","cache":"off","upsample":"none","quality_target_s":null,
   "output_format":"png","output_quality":95,"metadata":["a1111","json"],"save":true,
   "preview":{"mode":"linear","every":1,"size":512},"priority":0,"client_ref":"free text","tags":[]})");
  const Json checked = check(request);
  EXPECT_GE(checked["seed"].get<int64_t>(), 0) << "the seed is drawn";
  const SettingLayer layer = settings(checked);
  EXPECT_EQ(layer.at("width").values, std::vector<std::string>{"1024"});
  EXPECT_EQ(layer.at("format").values, std::vector<std::string>{"png"});
  EXPECT_EQ(layer.at("metadata").values, std::vector<std::string>{"a1111,json"});
  EXPECT_EQ(layer.at("align").values, std::vector<std::string>{"on"});
  EXPECT_FALSE(layer.contains("output"));
}

TEST_F(JobRequest, ListsAllProblemsAtOnce) {
  const HttpError error = refusal_of({{"prompt", "x"}, {"widht", 5}, {"steps", "many"}, {"seed", -7}, {"strength", 3}});
  EXPECT_EQ(error.status, 400);
  ASSERT_EQ(error.fields.size(), 4u);
  EXPECT_EQ(error.fields[0].path, "widht");
  EXPECT_THAT(error.fields[0].message, HasSubstr("did you mean width?"));
}

TEST_F(JobRequest, RefusesEverythingThatNamesAFile) {
  for (const char* member : {"output",    "from",         "remix",      "dit",        "vae",         "text_encoder", "tokenizer",
                             "wildcards", "preview_file", "embeddings", "noise_file", "latents_out", "latent_path",  "trace",
                             "sidecar",   "device",       "threads",    "max_vram",   "quant_cache", "text_cache",   "offload"})
    EXPECT_EQ(refusal_of({{"prompt", "x"}, {member, "/etc/passwd"}}).fields.size(), 1u) << member;
  for (const char* name : {"../secret", "/etc/passwd", "a/b", ""})
    EXPECT_EQ(refusal_of({{"prompt", "x"}, {"model", name}}).fields.size(), 1u) << name;
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"loras", {{{"name", "../../x"}, {"weight", 1}}}}}).fields.size(), 1u);
}

TEST_F(JobRequest, StoresImagesAndPassesTheirFiles) {
  const Json checked = check({{"prompt", "x"}, {"references", {png(1), "data:image/png;base64," + png(2)}}}, "edit");
  for (const Json& image : checked["references"]) EXPECT_THAT(image.get<std::string>(), testing::StartsWith("asset:"));
  const auto input = settings(checked).at("input").values;
  ASSERT_EQ(input.size(), 2u);
  for (const std::string& path : input) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  EXPECT_NE(input[0], input[1]);
  EXPECT_EQ(check(checked, "edit")["references"], checked["references"]) << "a checked request is valid";
}

TEST_F(JobRequest, RefusesWhatIsNoImage) {
  for (const std::string& image :
       {std::string("!!"), base64_encode(std::as_bytes(std::span("hello", 5))), std::string("asset:nothing"),
        std::string("data:image/png,abc"), std::string("http://127.0.0.1/x.png"), std::string("/etc/passwd")}) {
    const HttpError error = refusal_of({{"prompt", "x"}, {"references", {image}}}, "edit");
    EXPECT_EQ(error.code, "invalid_image_file") << image;
    EXPECT_EQ(error.param, "references[0]") << image;
  }
}

TEST_F(JobRequest, AnInpaintingJobNeedsACanvasAndAMask) {
  EXPECT_EQ(refusal_of({{"prompt", "x"}}, "inpaint").fields.size(), 2u);
  EXPECT_EQ(refusal_of(Json::object()).fields.size(), 1u) << "a prompt is needed";
  const Json checked = check({{"prompt", "x"}, {"canvas", png(1)}, {"mask", png(2)}, {"references", {png(3)}}}, "inpaint");
  const SettingLayer layer = settings(checked);
  EXPECT_EQ(layer.at("input").values.size(), 2u) << "the canvas comes first";
  EXPECT_EQ(layer.at("mask").values.size(), 1u);
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"mask", png()}}).fields.size(), 1u);
}

TEST_F(JobRequest, UnderstandsTheNamesOfOtherStudios) {
  const Json checked = check({{"prompt", "x"},
                              {"num_inference_steps", 25},
                              {"guidance_scale", 2.0},
                              {"negative_prompt", "blurry"},
                              {"reference_images", {png(1)}},
                              {"element_images", {png(2)}},
                              {"enable_true_cfg", true},
                              {"enable_ae", false}},
                             "edit");
  EXPECT_EQ(checked["steps"], 25);
  EXPECT_EQ(checked["negative"], "blurry");
  EXPECT_EQ(checked["references"].size(), 2u);
  EXPECT_EQ(checked["cfg"], 2.0);
  EXPECT_EQ(warnings_.size(), 7u);
}

TEST_F(JobRequest, KeepsToTheLimitsOfAServer) {
  EXPECT_THAT(refusal_of({{"prompt", std::string(40000, 'x')}}).what(), HasSubstr("32.0 KiB"));
  // The member as the client calls it is named once.
  const HttpError count = refusal_of({{"prompt", "x"}, {"count", 1000}});
  EXPECT_EQ(count.status, 400);
  EXPECT_STREQ(count.what(), "count: 1000 images; the limit is 16");
  EXPECT_EQ(count.param, "count");
  ASSERT_EQ(count.fields.size(), 1u);
  EXPECT_EQ(count.fields[0].path, "count");
  EXPECT_EQ(count.fields[0].message, "1000 images; the limit is 16");
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"width", 100000}, {"height", 64}}).param, "width");
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"size", "9000x64"}}).param, "size");
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"references", std::vector<std::string>(17, png())}}, "edit").param, "references");
}

TEST_F(JobRequest, AChoiceIsNamedUnlessItIsOnOrOff) {
  EXPECT_EQ(refusal_of({{"prompt", "x"}, {"quant", false}}).fields.size(), 1u);
  EXPECT_EQ(settings(check({{"prompt", "x"}, {"ref_kv", false}})).at("ref-kv").values, std::vector<std::string>{"off"});
}

TEST_F(JobRequest, RefusesWhatDoesNotWorkYet) {
  for (const auto& [member, value] : {std::pair{"project_id", Json("prj_1")},
                                      {"elements", Json{"@Hero"}},
                                      {"upsample", Json("magic")},
                                      {"cache", Json("easy")},
                                      {"preview", Json{{"mode", "linear"}, {"size", 64}}},
                                      {"mask_text", Json("the car")}})
    EXPECT_EQ(refusal_of({{"prompt", "x"}, {member, value}}).fields.size(), 1u) << member;
}

}  // namespace
}  // namespace flux2
