#include <gmock/gmock.h>

#include "app/mask_service.h"
#include "base/base64.h"
#include "server/api/test_studio.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class NativeMasksTest : public StudioTest {
 protected:
  NativeMasksTest() {
    api_.masks = &service_;
    Image mask(64, 64, 1);
    mask.pixels[5] = 255;
    reply_.body = png(mask);
  }

  static std::string png(const Image& image) {
    const auto bytes = encode_png(image);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static std::string data_url(const Image& image) { return "data:image/png;base64," + base64_encode(encode_png(image)); }

  test::Reply reply_;
  test::HttpServer server_{[this](const test::ServedRequest&) { return reply_; }};
  MaskService service_{server_.url(), {}};
  const Image image_{64, 64, 3};
};

TEST_F(NativeMasksTest, MasksComeFromTheService) {
  const auto made = post("/api/v1/mask/points", {{"image", data_url(image_)}, {"points", {{1, 2}}}});
  ASSERT_EQ(status_of(*made), 200) << made->response->body;
  EXPECT_EQ(made->response->content_type, "image/png");
  EXPECT_EQ(made->response->body, reply_.body);
  EXPECT_EQ(status_of(*post_form("/api/v1/mask/text",
                                 {file("image", encode_png(image_)), text("text", "dog"), text("confidence", "0.3")})),
            200);
  EXPECT_THAT(server_.requests().at(1).body, HasSubstr("0.3"));
  reply_.body = Json{{"objects", Json::array()}}.dump();
  EXPECT_EQ(send("POST", "/api/v1/mask/detect", {{"image", data_url(image_)}, {"text", "dog"}})["count"], 0);
  for (const Json& wrong :
       {Json{{"points", {{1, 2}}}}, Json{{"image", data_url(image_)}, {"points", {{64, 2}}}},
        Json{{"image", data_url(image_)}, {"points", "1,2"}}, Json{{"image", "x"}, {"points", {{1, 2}}}},
        Json{{"image", data_url(image_)}, {"points", {{1, 2, 5}}}}, Json{{"image", data_url(image_)}, {"boxes", {1, 2}}}})
    send("POST", "/api/v1/mask/points", wrong, 400);
  send("POST", "/api/v1/mask/text", {{"image", data_url(image_)}, {"text", " "}}, 400);
  send("POST", "/api/v1/mask/text", {{"image", data_url(image_)}, {"text", "x"}, {"confidence", 2}}, 400);
}

TEST_F(NativeMasksTest, AnInpaintingJobGetsItsMaskBeforeItWaits) {
  Json request = {{"kind", "inpaint"}, {"prompt", "a cat"}, {"canvas", data_url(image_)}, {"mask_text", "the dog"}};
  const Json job = send("POST", "/api/v1/jobs", request, 202);
  const std::string mask = job["request"]["mask"].get<std::string>().replace(0, 6, "ast_");
  const Json asset = send("GET", "/api/v1/assets/" + mask);
  EXPECT_EQ(asset["kind"], "mask");
  EXPECT_EQ(job["request"]["canvas"].get<std::string>(), "asset:" + asset["parent_id"].get<std::string>().substr(4));
  // The names that Milimo uses.
  request.erase("mask_text"), request.erase("canvas");
  request["image_path"] = data_url(image_), request["points"] = {{1, 2}, {3, 4, 0}};
  const Json other = send("POST", "/api/v1/jobs", request, 202);
  EXPECT_EQ(other["request"]["mask"], job["request"]["mask"]);
  EXPECT_EQ(other["warnings"].size(), 2u);
  EXPECT_THAT(server_.requests().at(1).body, HasSubstr("[1,0]"));
  request["points"] = {{99, 2}};
  send("POST", "/api/v1/jobs", request, 400);
  reply_.body = png(Image(64, 64, 1));
  request["points"] = {{1, 2}};
  EXPECT_EQ(send("POST", "/api/v1/jobs", request, 422)["error"]["code"], "empty_mask");
  send("POST", "/api/v1/jobs", {{"prompt", "x"}, {"mask_text", "dog"}}, 400);
}

TEST_F(NativeMasksTest, WithoutAServiceThereAreNoMasks) {
  const MaskService absent("http://127.0.0.1:1", {});
  api_.masks = &absent;
  EXPECT_EQ(send("GET", "/api/v1/mask/health")["online"], false);
  const Json refused = send("POST", "/api/v1/jobs",
                            {{"kind", "inpaint"}, {"prompt", "x"}, {"canvas", data_url(image_)}, {"mask_text", "dog"}}, 424);
  EXPECT_EQ(refused["error"]["code"], "mask_service_unavailable");
  send("POST", "/api/v1/mask/text", {{"image", data_url(image_)}, {"text", "dog"}}, 424);
  api_.masks = nullptr;
  EXPECT_EQ(send("GET", "/api/v1/mask/health")["status"], "off");
  send("POST", "/api/v1/mask/points", {{"image", data_url(image_)}, {"points", {{1, 2}}}}, 424);
}

}  // namespace
}  // namespace flux2
