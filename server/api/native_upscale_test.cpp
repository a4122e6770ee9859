#include <gmock/gmock.h>

#include "app/registry_access.h"
#include "base/base64.h"
#include "hub/registry/describe.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "server/api/dj.h"
#include "server/api/enlarging.h"
#include "server/api/sdapi.h"
#include "server/api/test_studio.h"
#include "server/jobs/upscale_service.h"
#include "tests/support/random_upscaler.h"

namespace flux2 {
namespace {

// A server with one installed upscaler, called tiny.
class NativeUpscaleTest : public StudioTest {
 protected:
  NativeUpscaleTest() {
    api_.upscales = &service_;
    add_upscale_routes(router_, api_);
    add_sdapi_routes(router_, api_);
    for (int i = 0; i < 20 * 12 * 3; ++i) image_.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7);
    test::write_random_upscaler(file_, {.scale = 2, .blocks = 1, .width = 8, .growth = 4});
    ModelRecord record = identify(file_).front().record;
    record.name = "tiny";
    Registry registry = open_registry(app_);
    registry.add(record);
  }

  std::string data_url() const { return "data:image/png;base64," + base64_encode(encode_png(image_)); }
  // The answer of a request that waits for the network.
  std::shared_ptr<FakePeer> answered(const std::string& path, const Json& body) {
    auto peer = post(path, body);
    service_.wait();
    return peer;
  }
  static Image image_in(const FakePeer& peer) {
    EXPECT_EQ(peer.response->content_type, "image/png") << peer.response->body;
    return read_image(std::as_bytes(std::span(peer.response->body)));
  }
  Image by_network() {
    const NetworkUpscaler network(file_, {.device = "cpu", .threads = 1});
    return network.enlarge(image_, 40, 24, {});
  }

  Image image_{20, 12, 3};
  std::filesystem::path file_ = folder_ / "models/tiny.safetensors";
  UpscaleService service_{{.device = "cpu", .threads = 1}};
};

TEST_F(NativeUpscaleTest, EnlargesWithTheNetwork) {
  const Image wanted = by_network();
  EXPECT_NE(wanted, resize(image_, 40, 24));
  for (const Json& how : {Json{{"upscaler", "tiny"}}, Json{{"method", "esrgan"}, {"scale", 2}}}) {
    Json body = how;
    body["image"] = data_url();
    const auto peer = answered("/api/v1/upscale", body);
    ASSERT_EQ(status_of(*peer), 200);
    EXPECT_EQ(image_in(*peer), wanted);
  }
  const auto smaller = answered("/api/v1/upscale", {{"image", data_url()}, {"upscaler", "tiny"}, {"scale", 1.5}});
  EXPECT_EQ(image_in(*smaller), resize(wanted, 30, 18));
  EXPECT_EQ(image_in(*post("/api/v1/upscale", {{"image", data_url()}, {"scale", 3}})), resize(image_, 60, 36));
}

TEST_F(NativeUpscaleTest, WrongRequestsAreRefused) {
  for (const Json& wrong :
       {Json{{"method", "esrgan"}}, Json{{"image", data_url()}, {"method", "magic"}}, Json{{"image", data_url()}, {"scale", 9}},
        Json{{"image", data_url()}, {"upscaler", "nobody"}}, Json{{"image", data_url()}, {"upscaler", file_.string()}},
        Json{{"image", data_url()}, {"x", 1}}, Json{{"image", data_url()}, {"method", "lanczos"}, {"upscaler", "tiny"}}})
    EXPECT_EQ(status_of(*answered("/api/v1/upscale", wrong)), 400) << wrong;
  api_.upscales = nullptr;
  EXPECT_EQ(status_of(*post("/api/v1/upscale", {{"image", data_url()}, {"upscaler", "tiny"}})), 501);
}

TEST_F(NativeUpscaleTest, TheOtherFamilyListsAndUsesIt) {
  const Json list = body_of(*get("/sdapi/v1/upscalers"));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2]["name"], "tiny");
  EXPECT_EQ(list[2]["scale"], 2);
  const std::string image = base64_encode(encode_png(image_));
  const auto one = answered("/sdapi/v1/extra-single-image", {{"image", image}, {"upscaler_1", "tiny"}, {"upscaling_resize", 2}});
  ASSERT_EQ(status_of(*one), 200) << one->response->body;
  EXPECT_EQ(read_image(base64_decode(body_of(*one)["image"].get<std::string>())), by_network());
  const auto several = answered("/sdapi/v1/extra-batch-images", {{"imageList", {{{"data", image}}, {{"data", image}}}},
                                                                 {"upscaler_1", "tiny"},
                                                                 {"resize_mode", 1},
                                                                 {"upscaling_resize_w", 10},
                                                                 {"upscaling_resize_h", 10}});
  const Json images = body_of(*several)["images"];
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(read_image(base64_decode(images[1].get<std::string>())), cover(by_network(), 10, 10));
}

TEST_F(NativeUpscaleTest, AClientThatLeavesStopsTheWork) {
  std::string said;
  service_.submit([&] {
    try {
      service_.enlarge(file_, image_, [] { return true; });
    } catch (const Error& e) {
      said = e.what();
    }
  });
  service_.wait();
  EXPECT_EQ(said, "stopped");
}

TEST_F(NativeUpscaleTest, ResultsOfDjAreEnlargedWithTheNetwork) {
  add_dj_routes(router_, api_);
  const auto result_by = [&](const char* method) {
    const auto submitted = post("/generate", {{"prompt", "a"}, {"upscale", 4}, {"upscale_method", method}});
    EXPECT_EQ(status_of(*submitted), 201);
    complete(claim());
    auto result = get("/result/" + body_of(*submitted)["token"].get<std::string>());
    service_.wait();
    return image_in(*result);
  };
  const Image by_lanczos = result_by("lanczos"), by_esrgan = result_by("realesrgan");
  EXPECT_EQ(by_esrgan.width, 256);
  EXPECT_EQ(by_esrgan.width, by_lanczos.width);
  EXPECT_NE(by_esrgan, by_lanczos);
}

}  // namespace
}  // namespace flux2
