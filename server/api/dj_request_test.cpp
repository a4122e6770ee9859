#include "server/api/dj_request.h"

#include <gtest/gtest.h>

#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {
namespace {

template <class F>
std::string dj_failure(F&& call) {
  try {
    call();
  } catch (const HttpError& e) {
    return std::to_string(e.status) + " " + e.param;
  }
  return "no error";
}

TEST(DjRequest, TranslatesEveryMember) {
  const DjRequest r = parse_dj_request(Json::parse(R"({"prompt":"a cat","model":"klein","width":500,"height":300,"steps":4,
    "guidance":2.0,"seed":7,"input_image_base64":"AAAA","upscale":2,"upscale_method":"lanczos"})"));
  EXPECT_EQ(r.native, Json::parse(R"({"prompt":"a cat","width":496,"height":304,"steps":4,"guidance":2.0,"seed":7})"));
  EXPECT_EQ(r.model, "klein");
  EXPECT_EQ(r.images, std::vector<std::string>{"AAAA"});
  EXPECT_EQ(r.upscale, 2);
  EXPECT_EQ(parse_dj_request(Json::parse(R"({"prompt":"a","input_image_base64":["A","B"],"upscale":null,"seed":null})")).images,
            (std::vector<std::string>{"A", "B"}));
}

TEST(DjRequest, Errors) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({})", "422 prompt"},
      {R"({"prompt":" "})", "422 prompt"},
      {R"({"prompt":"a","width":2049,"height":64})", "400 width"},
      {R"({"prompt":"a","width":-5})", "400 width"},
      {R"({"prompt":"a","steps":"4"})", "422 steps"},
      {R"({"prompt":"a","upscale":3})", "422 upscale"},
      {R"({"prompt":"a","upscale_method":"magic"})", "422 upscale_method"},
      {R"({"prompt":"a","input_image_base64":[1]})", "422 input_image_base64"},
      {R"({"prompt":"a","guidance":"x"})", "422 guidance"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(dj_failure([&] { parse_dj_request(Json::parse(text)); }), expected) << text;
}

TEST(DjRequest, TokensAreIdsInHex) {
  for (int i = 0; i < 100; ++i) {
    const std::string id = new_id(), token = dj_token(id);
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(job_of_dj_token(token), id);
  }
  EXPECT_EQ(dj_token("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), std::string(32, 'f'));
  EXPECT_EQ(dj_token("00000000000000000000000001"), std::string(31, '0') + "1");
  for (const char* bad : {"", "xyz", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcde"})
    EXPECT_FALSE(job_of_dj_token(bad)) << bad;
}

TEST(DjRequest, StatusHasEveryMember) {
  Job job;
  job.id = new_id();
  job.state = "cancelling";
  job.request = {{"prompt", "a cat"}, {"seed", 7}, {"width", 64}};
  job.resolved = Json::parse(R"({"model":{"id":"pico"},"width":64,"height":32})");
  job.created = 1000;
  job.message = "denoise 1/4";
  const Json status = dj_status(job, 0);
  EXPECT_EQ(status["status"], "running");
  EXPECT_EQ(status["model"], "pico");
  EXPECT_EQ(status["height"], 32);
  EXPECT_EQ(status["seed"], 7);
  EXPECT_EQ(status["created_at"], "1970-01-01T00:00:01.000Z");
  EXPECT_TRUE(status["queue_position"].is_null());
  EXPECT_TRUE(status["completed_at"].is_null());
  EXPECT_EQ(dj_status(job, 3)["queue_position"], 3);
}

TEST(DjRequest, TheJobRemembersTheScale) {
  DjRequest request;
  Job job;
  for (const int factor : {1, 2, 4}) {
    request.upscale = factor;
    for (const bool network : {false, true}) {
      request.upscale_network = network;
      job.client_ref = dj_client_ref(request);
      EXPECT_EQ(dj_upscale_of(job), factor);
      EXPECT_EQ(dj_upscales_by_network(job), network);
    }
  }
  job.client_ref = "something else";
  EXPECT_EQ(dj_upscale_of(job), 1);
}

}  // namespace
}  // namespace flux2
