#include "server/api/openai_request.h"

#include <gmock/gmock.h>

#include "server/http/errors.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The error of a call as "status code param".
template <class F>
std::string openai_failure(F&& call) {
  try {
    call();
  } catch (const HttpError& e) {
    return std::to_string(e.status) + " " + e.code + " " + e.param;
  }
  return "no error";
}

FormPart text_part(std::string name, std::string data) {
  FormPart part;
  part.name = std::move(name);
  part.bytes = data.size();
  part.data = std::move(data);
  return part;
}

TEST(OpenAiRequest, TranslatesEveryMember) {
  const OpenAiRequest r = parse_openai_request(Json::parse(R"({"prompt":"a cat","model":"klein-4b","n":3,"size":"500x300",
    "quality":"low","response_format":"url","output_format":"jpeg","output_compression":0,"background":"opaque",
    "moderation":"low","stream":true,"partial_images":2,"style":"vivid","user":"me","seed":7,"num_inference_steps":9,
    "guidance_scale":2.5,"negative_prompt":"dogs","loras":[{"name":"x","weight":0.5}],"unknown":[1]})"));
  EXPECT_EQ(r.native, Json::parse(R"({"prompt":"a cat","count":3,"width":496,"height":304,"output_format":"jpeg",
    "output_quality":1,"moderation":"low","tags":["style:vivid"],"seed":7,"steps":9,"guidance":2.5,"negative":"dogs",
    "loras":[{"name":"x","weight":0.5}],"preview":{"mode":"full","count":2}})"));
  EXPECT_EQ(r.model, "klein-4b");
  EXPECT_EQ(r.quality, "low");
  EXPECT_EQ(r.quality_steps, 20);
  EXPECT_TRUE(r.as_url);
  EXPECT_TRUE(r.stream);
  EXPECT_EQ(r.partial_images, 2);
  EXPECT_EQ(r.user, "me");
}

TEST(OpenAiRequest, NullEqualsAbsent) {
  const OpenAiRequest r = parse_openai_request(Json::parse(R"({"prompt":"a","n":null,"size":null,"quality":null,"stream":null,
    "partial_images":null,"flux2":null,"output_compression":null,"seed":null,"model":null})"));
  EXPECT_EQ(r.native, Json::parse(R"({"prompt":"a","count":1,"output_format":"png"})"));
  EXPECT_FALSE(r.stream);
}

TEST(OpenAiRequest, SizeIsAutoOrAPreset) {
  EXPECT_FALSE(parse_openai_request({{"prompt", "a"}, {"size", "auto"}}).native.contains("width"));
  const Json native = parse_openai_request({{"prompt", "a"}, {"size", "16:9"}}).native;
  EXPECT_EQ(native["width"], 1360);
  EXPECT_EQ(native["height"], 768);
}

TEST(OpenAiRequest, ErrorsNameTheParameter) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({})", "400 missing_required_parameter prompt"},
      {R"({"prompt":""})", "400 missing_required_parameter prompt"},
      {R"({"prompt":null})", "400 missing_required_parameter prompt"},
      {R"({"prompt":7})", "400 invalid_type prompt"},
      {R"({"prompt":"a","n":0})", "400 invalid_value n"},
      {R"({"prompt":"a","n":11})", "400 invalid_value n"},
      {R"({"prompt":"a","n":"2"})", "400 invalid_type n"},
      {R"({"prompt":"a","n":18446744073709551615})", "400 invalid_value n"},
      {R"({"prompt":"a","size":"big"})", "400 invalid_value size"},
      {R"({"prompt":"a","size":"16x16"})", "400 invalid_value size"},
      {R"({"prompt":"a","size":"99999x64"})", "400 invalid_value size"},
      {R"({"prompt":"a","size":512})", "400 invalid_type size"},
      {R"({"prompt":"a","quality":"best"})", "400 invalid_value quality"},
      {R"({"prompt":"a","response_format":"json"})", "400 invalid_value response_format"},
      {R"({"prompt":"a","output_format":"gif"})", "400 invalid_value output_format"},
      {R"({"prompt":"a","output_compression":101})", "400 invalid_value output_compression"},
      {R"({"prompt":"a","background":"transparent"})", "400 unsupported_value background"},
      {R"({"prompt":"a","background":"blue"})", "400 invalid_value background"},
      {R"({"prompt":"a","moderation":"none"})", "400 invalid_value moderation"},
      {R"({"prompt":"a","stream":"yes"})", "400 invalid_type stream"},
      {R"({"prompt":"a","stream":true,"partial_images":4})", "400 invalid_value partial_images"},
      {R"({"prompt":"a","partial_images":1})", "400 invalid_value partial_images"},
      {R"({"prompt":"a","user":1})", "400 invalid_type user"},
      {R"({"prompt":"a","seed":1.5})", "400 invalid_type seed"},
      {R"({"prompt":"a","guidance":"2"})", "400 invalid_type guidance"},
      {R"({"prompt":"a","loras":"x"})", "400 invalid_type loras"},
      {R"({"prompt":"a","flux2":[]})", "400 invalid_type flux2"},
      {R"({"prompt":"a","flux2":{"preview_size":1}})", "400 invalid_value preview_size"},
      {R"({"prompt":"a","input_fidelity":"medium"})", "400 invalid_value input_fidelity"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(openai_failure([&] { parse_openai_request(Json::parse(text)); }), expected) << text;
  EXPECT_EQ(openai_failure([&] { parse_openai_request({{"prompt", std::string(32001, 'a')}}); }), "400 invalid_value prompt");
  EXPECT_EQ(openai_failure([&] { parse_openai_request({{"prompt", std::string(32000, 'a')}}); }), "no error");
}

TEST(OpenAiRequest, OwnMembersWin) {
  const OpenAiRequest r = parse_openai_request(Json::parse(R"({"prompt":"a","size":"512x512","steps":4,"model":"dall-e-3",
    "flux2":{"steps":2,"size":"256x128","sampler":"heun","model":"pico","preview_size":128,"cfg":null}})"));
  EXPECT_EQ(r.native, Json::parse(R"({"prompt":"a","count":1,"output_format":"png","steps":2,"size":"256x128","sampler":"heun",
    "model":"pico"})"));
  EXPECT_EQ(r.model, "pico");
  EXPECT_EQ(r.preview_side, 128);
}

TEST(OpenAiRequest, FormsAreReadAsTypedMembers) {
  const Json body = openai_body_of_form({text_part("prompt", "12"), text_part("n", "2"), text_part("stream", "true"),
                                         text_part("image", "bytes"), text_part("image[]", "bytes"), text_part("mask", "bytes"),
                                         text_part("flux2[seed]", "42"), text_part("flux2[align]", "false"),
                                         text_part("flux2[loras][][name]", "7"), text_part("flux2[loras][][weight]", "0.5"),
                                         text_part("flux2[loras][][name]", "b"), text_part("flux2[metadata][0]", "json"),
                                         text_part("size", "256x256"), text_part("bad[", "x")});
  EXPECT_EQ(body, Json::parse(R"({"prompt":"12","n":2,"stream":true,"flux2":{"seed":42,"align":false,
    "loras":[{"name":"7","weight":0.5},{"name":"b"}],"metadata":["json"]},"size":"256x256"})"));
}

TEST(OpenAiRequest, APartOfAFormMayHoldJson) {
  EXPECT_EQ(openai_body_of_form({text_part("flux2", R"({"steps":2})")}), Json::parse(R"({"flux2":{"steps":2}})"));
  EXPECT_EQ(openai_failure([] { openai_body_of_form({text_part("flux2", "{")}); }), "400 invalid_json flux2");
  EXPECT_EQ(openai_failure([] { openai_body_of_form({text_part("prompt", "\xff")}); }), "400 invalid_value prompt");
}

TEST(OpenAiRequest, FindsImagesInEverySpelling) {
  for (const char* name : {"image", "image[]", "image[0]", "image[15]"}) EXPECT_TRUE(is_openai_image_part(name)) << name;
  for (const char* name : {"images", "imagery", "mask", "image[", ""}) EXPECT_FALSE(is_openai_image_part(name)) << name;
  EXPECT_THAT(openai_images(Json::parse(R"({"images":[{"b64_json":"A"},{"image_url":"data:B"},{"file_id":"C"},"D",
    {"image_url":{"url":"data:E"}}]})")),
              ElementsAre("A", "data:B", "asset:C", "D", "data:E"));
  EXPECT_EQ(openai_mask(Json::parse(R"({"mask":{"b64_json":"M"}})")), "M");
  EXPECT_EQ(openai_mask(Json::object()), std::nullopt);
  EXPECT_EQ(openai_failure([] { openai_images(Json::parse(R"({"images":[{}]})")); }), "400 missing_required_parameter image");
}

TEST(OpenAiRequest, QualityAndGuidanceFollowTheModel) {
  ModelFiles base, distilled;
  base.distilled = false;
  OpenAiRequest r = parse_openai_request(Json::parse(R"({"prompt":"a","quality":"hd","guidance":3})"));
  OpenAiRequest other = r;
  apply_model_rules(r, base);
  EXPECT_EQ(r.native["steps"], 50);
  EXPECT_EQ(r.native["guidance"], 3);
  apply_model_rules(other, distilled);
  EXPECT_FALSE(other.native.contains("steps"));
  EXPECT_FALSE(other.native.contains("guidance"));
}

TEST(OpenAiRequest, FidelityLimitsReferences) {
  OpenAiRequest r;
  EXPECT_EQ(reference_pixels(r, 1), "");
  r.high_fidelity = true;
  EXPECT_EQ(reference_pixels(r, 3), std::to_string(2024 * 2024));
  r.high_fidelity = false;
  EXPECT_EQ(reference_pixels(r, 1), std::to_string(2024 * 2024 / 2));
  EXPECT_EQ(reference_pixels(r, 2), std::to_string(1024 * 1024 / 2));
}

TEST(OpenAiRequest, KnowsNamesOfOpenAi) {
  for (const char* name : {"gpt-image-1", "dall-e-3", "chatgpt-image-latest"}) EXPECT_TRUE(is_openai_model_name(name));
  EXPECT_FALSE(is_openai_model_name("pico"));
}

}  // namespace
}  // namespace flux2
