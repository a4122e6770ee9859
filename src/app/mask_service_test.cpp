#include "app/mask_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/base64.h"
#include "image/write_image.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

// White in the right half.
Image half_mask(int width, int height, int channels = 1) {
  Image mask(width, height, channels);
  for (int y = 0; y < height; ++y)
    for (int x = width / 2; x < width; ++x) mask.at(x, y)[channels - 1] = 255;
  return mask;
}
std::string png(const Image& image) {
  const auto bytes = encode_png(image);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string base64(const Image& image) { return base64_encode(encode_png(image)); }

class MaskServiceTest : public testing::Test {
 protected:
  MaskService service(MaskRules rules = {}) { return MaskService(server_.url() + "/", {}, rules); }

  template <class Call>
  static std::optional<MaskServiceError::Why> refused(Call&& call) {
    try {
      call();
    } catch (const MaskServiceError& e) {
      return e.why();
    }
    return std::nullopt;
  }

  test::Reply reply_;
  test::HttpServer server_{[this](const test::ServedRequest&) { return reply_; }};
  const Image image_{64, 32, 3};
};

TEST_F(MaskServiceTest, PointsBecomeAMask) {
  reply_.body = png(half_mask(64, 32));
  const auto found = service().by_points(image_, {{.x = 3, .y = 4}, {.x = 63.5, .y = 0, .include = false}}, std::nullopt, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].mask, half_mask(64, 32));
  const auto request = server_.requests().at(0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/predict/mask");
  EXPECT_THAT(request.header("content-type"), HasSubstr("multipart/form-data"));
  EXPECT_THAT(request.body, HasSubstr("name=\"points\"\r\n\r\n[[3.0,4.0],[63.5,0.0]]\r\n"));
  EXPECT_THAT(request.body, HasSubstr("name=\"labels\"\r\n\r\n[1,0]\r\n"));
  EXPECT_THAT(request.body, HasSubstr("name=\"multimask\"\r\n\r\nfalse\r\n"));
  EXPECT_THAT(request.body, HasSubstr(png(image_)));
}

TEST_F(MaskServiceTest, LargeImagesAreSentSmallerAndMasksScaledBack) {
  reply_.body = png(half_mask(16, 8, 4));  // alpha is the mask
  const auto found =
      service({.longest_side = 16}).by_points(image_, {{.x = 32, .y = 16}}, std::array<double, 4>{0.5, 0.5, 1, 1}, false);
  EXPECT_EQ(found[0].mask, half_mask(64, 32));
  EXPECT_THAT(server_.requests().at(0).body, HasSubstr("[[8.0,4.0]]"));
  EXPECT_THAT(server_.requests().at(0).body, HasSubstr("name=\"boxes\"\r\n\r\n[0.5,0.5,1.0,1.0]"));
}

TEST_F(MaskServiceTest, SeveralMasksAndObjects) {
  reply_.body =
      Json{{"masks",
            {{{"mask", base64(half_mask(64, 32))}, {"score", 0.9}}, {{"mask", base64(Image(64, 32, 1))}, {"score", 0.1}}}}}
          .dump();
  const auto masks = service().by_points(image_, {{.x = 1, .y = 1}}, std::nullopt, true);
  ASSERT_EQ(masks.size(), 1u) << "empty ones are left out";
  EXPECT_EQ(masks[0].score, 0.9);
  reply_.body =
      Json{{"objects",
            {{{"id", 0}, {"mask", base64(half_mask(64, 32, 4))}, {"bbox", {32, 0, 64, 32}}, {"score", 0.8}, {"label", "dog"}}}}}
          .dump();
  const auto objects = service().detect(image_, "dog", 0.25);
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0].label, "dog");
  EXPECT_EQ(objects[0].box[0], 32);
  EXPECT_THAT(server_.requests().at(1).body, HasSubstr("name=\"confidence\"\r\n\r\n0.25\r\n"));
}

TEST_F(MaskServiceTest, WhatIsWrongIsSaid) {
  reply_.body = png(Image(64, 32, 1));
  EXPECT_EQ(refused([&] { service().by_text(image_, "dog", 0.5); }), MaskServiceError::FoundNothing);
  EXPECT_THAT([&] { service().by_points(image_, {{.x = 64, .y = 0}}, std::nullopt, false); },
              testing::ThrowsMessage<Error>(HasSubstr("64 x 32")));
  EXPECT_THAT([&] { service().by_points(image_, {}, std::nullopt, false); }, testing::ThrowsMessage<Error>(HasSubstr("points")));
  reply_.body = "no image";
  EXPECT_EQ(refused([&] { service().by_text(image_, "dog", 0.5); }), MaskServiceError::Failed);
  EXPECT_EQ(refused([&] { service().detect(image_, "dog", 0.5); }), MaskServiceError::Failed);
  reply_.body = "{\"objects\": [{\"mask\": \"?\"}]}";
  EXPECT_EQ(refused([&] { service().detect(image_, "dog", 0.5); }), MaskServiceError::Failed);
  reply_.status = 500;
  EXPECT_EQ(refused([&] { service().by_text(image_, "dog", 0.5); }), MaskServiceError::Failed);
  reply_.status = 503;
  EXPECT_EQ(refused([&] { service().by_text(image_, "dog", 0.5); }), MaskServiceError::Unavailable);
}

TEST_F(MaskServiceTest, ASlowServiceIsNotWaitedForForever) {
  reply_.body = png(half_mask(64, 32));
  reply_.wait_s = 5;
  const auto late = refused([&] { service({.answer_s = 0.5}).by_text(image_, "dog", 0.5); });
  EXPECT_EQ(late, MaskServiceError::Unavailable);
  EXPECT_THROW(service().by_text(image_, "dog", 0.5, [] { return true; }), Error) << "the client has left";
}

TEST_F(MaskServiceTest, AnAbsentServiceIsOffline) {
  reply_.body = R"({"status":"running","model_loaded":true,"processor_ready":true})";
  const Json there = service().health();
  EXPECT_EQ(there["online"], true);
  EXPECT_EQ(there["model_loaded"], true);
  EXPECT_GE(there["latency_ms"], 0);
  const MaskService absent("http://127.0.0.1:1", {});
  EXPECT_EQ(absent.health()["online"], false);
  EXPECT_EQ(absent.health()["latency_ms"], -1);
  EXPECT_EQ(refused([&] { absent.by_text(image_, "dog", 0.5); }), MaskServiceError::Unavailable);
}

}  // namespace
}  // namespace flux2
