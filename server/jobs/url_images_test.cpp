#include "server/jobs/url_images.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "net/public_address.h"
#include "server/http/errors.h"
#include "tests/support/http_server.h"

namespace flux2 {
namespace {

using test::HttpServer;
using test::Reply;
using test::ServedRequest;

const UrlImageRules kHttp{.plain_http = true};

// What a fetch that must fail says.
std::string refusal(UrlImages& images, const std::string& url, const UrlImageRules& rules = kHttp) {
  try {
    images.fetch(url, rules);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
    return e.what();
  }
  return "fetched";
}

HttpSettings any_address() {
  HttpSettings settings;
  settings.allows_address = [](const sockaddr*) { return true; };
  return settings;
}

Reply image(std::string body) { return {.headers = {{"Content-Type", "image/png"}}, .body = std::move(body)}; }

TEST(UrlImages, FetchesImagesAlone) {
  HttpServer server([](const ServedRequest& r) {
    if (r.target == "/image") return image("pixels");
    if (r.target == "/moved") return Reply{.status = 302, .headers = {{"Location", "/image"}}};
    if (r.target == "/large") return image(std::string(3000, 'x'));
    if (r.target == "/endless") {
      Reply reply = image(std::string(3000, 'x'));
      reply.content_length = false;
      return reply;
    }
    if (r.target == "/slow") {
      Reply reply = image(std::string(3000, 'x'));
      reply.wait_s = 3;
      return reply;
    }
    if (r.target == "/page") return Reply{.headers = {{"Content-Type", "text/html"}}, .body = "<p>"};
    if (r.target == "/drawing") return Reply{.headers = {{"Content-Type", "image/svg+xml"}}, .body = "<svg>"};
    return Reply{.status = 404};
  });
  UrlImages images(any_address());
  const auto bytes = images.fetch(server.url() + "/moved", kHttp);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "pixels");
  EXPECT_EQ(refusal(images, server.url() + "/page"), "the address does not lead to an image");
  EXPECT_EQ(refusal(images, server.url() + "/drawing"), "the address does not lead to an image");
  EXPECT_EQ(refusal(images, server.url() + "/nothing"), "the image could not be fetched from its address");
  const UrlImageRules small{.plain_http = true, .bytes = 2000};
  EXPECT_EQ(refusal(images, server.url() + "/large", small), "the image at the address is too large");
  EXPECT_EQ(refusal(images, server.url() + "/endless", small), "the image at the address is too large");
  const UrlImageRules quick{.plain_http = true, .time = std::chrono::milliseconds(300)};
  EXPECT_EQ(refusal(images, server.url() + "/slow", quick), "fetching the image from its address took too long");
  EXPECT_EQ(refusal(images, server.url() + "/image", {}), "only https addresses are fetched");
}

TEST(UrlImages, NoAddressOfThisNetworkEvenThroughARedirect) {
  HttpServer inside([](const ServedRequest&) { return image("secret"); });
  UrlImages images{HttpSettings{}};
  const std::string closed = refusal(images, inside.url() + "/x");
  EXPECT_EQ(closed, "the image could not be fetched from its address");
  EXPECT_EQ(closed, refusal(images, "http://127.0.0.1:1/x")) << "an answer must not say which ports are open";
  EXPECT_EQ(closed, refusal(images, fmt::format("http://localhost:{}/x", inside.port())));
  EXPECT_EQ(closed, refusal(images, fmt::format("http://[::ffff:127.0.0.1]:{}/x", inside.port())));
  EXPECT_EQ(closed, refusal(images, fmt::format("http://2130706433:{}/x", inside.port())));

  // The first server counts as public here, the one it redirects to does not.
  HttpServer outside([&](const ServedRequest&) { return Reply{.status = 302, .headers = {{"Location", inside.url()}}}; });
  HttpSettings settings;
  int connections = 0;
  settings.allows_address = [&](const sockaddr* address) { return connections++ == 0 || is_public_address(address); };
  UrlImages redirected(settings);
  EXPECT_EQ(refusal(redirected, outside.url()), closed);
  EXPECT_EQ(outside.requests().size(), 1u);
  EXPECT_EQ(connections, 2);
  EXPECT_TRUE(inside.requests().empty());
}

TEST(UrlImages, AFewAtATime) {
  HttpServer server([](const ServedRequest&) {
    Reply reply = image("pixels");
    reply.wait_s = 0.5;
    return reply;
  });
  UrlImages images(any_address());
  std::jthread one([&] { images.fetch(server.url(), kHttp); }), two([&] { images.fetch(server.url(), kHttp); });
  for (int i = 0; i < 100 && server.requests().size() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  try {
    images.fetch(server.url(), kHttp);
    ADD_FAILURE() << "a third one was let in";
  } catch (const HttpError& e) {
    EXPECT_EQ(e.status, 429);
  }
}

}  // namespace
}  // namespace flux2
