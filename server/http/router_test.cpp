#include "server/http/router.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

Router sample_router() {
  Router router;
  for (const auto& [method, pattern] : std::vector<std::pair<std::string, std::string>>{{"GET", "/"},
                                                                                        {"GET", "/{path...}"},
                                                                                        {"GET", "/api/v1/jobs"},
                                                                                        {"POST", "/api/v1/jobs"},
                                                                                        {"GET", "/api/v1/jobs/{id}"},
                                                                                        {"DELETE", "/api/v1/jobs/{id}"},
                                                                                        {"POST", "/api/v1/jobs/cancel"},
                                                                                        {"POST", "/api/v1/jobs/{id}/cancel"},
                                                                                        {"POST", "/api/v1/{what}/one"},
                                                                                        {"GET", "/api/v1/jobs/{id}/images/{n}"},
                                                                                        {"PUT", "/only/put"}})
    router.add({.method = method, .pattern = pattern, .handler = {}});
  return router;
}

std::string pattern_found(const Router& router, std::string_view method, std::string_view path) {
  const Router::Match match = router.find(method, path);
  return match.route ? match.route->pattern : "";
}

TEST(Router, LiteralSegmentsComeBeforeCapturedOnes) {
  const Router router = sample_router();
  EXPECT_EQ(pattern_found(router, "GET", "/"), "/");
  EXPECT_EQ(pattern_found(router, "GET", "/css/page.css"), "/{path...}");
  EXPECT_EQ(pattern_found(router, "GET", "/api/v1/jobs"), "/api/v1/jobs");
  EXPECT_EQ(pattern_found(router, "POST", "/api/v1/jobs/cancel"), "/api/v1/jobs/cancel");
  EXPECT_EQ(pattern_found(router, "POST", "/api/v1/jobs/7/cancel"), "/api/v1/jobs/{id}/cancel");
  EXPECT_EQ(pattern_found(router, "HEAD", "/api/v1/jobs/7"), "/api/v1/jobs/{id}");
}

TEST(Router, CapturesSegmentsAndTheRest) {
  const Router router = sample_router();
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(router.find("GET", "/api/v1/jobs/ab/images/3").captured, (Pairs{{"id", "ab"}, {"n", "3"}}));
  EXPECT_EQ(router.find("GET", "/css//page.css").captured, (Pairs{{"path", "css//page.css"}}));
  // A capture is never empty, so this is a file of the page.
  EXPECT_EQ(router.find("GET", "/api/v1/jobs/").captured, (Pairs{{"path", "api/v1/jobs/"}}));
}

TEST(Router, NamesTheMethodsOfAPath) {
  const Router router = sample_router();
  const Router::Match match = router.find("PATCH", "/api/v1/jobs");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allowed, (std::vector<std::string>{"GET", "HEAD", "POST"}));
  EXPECT_EQ(router.find("PATCH", "only").allowed, std::vector<std::string>{});
  Router small;
  small.add({.method = "POST", .pattern = "/a", .handler = {}});
  EXPECT_EQ(small.find("GET", "/b").route, nullptr);
  EXPECT_TRUE(small.find("GET", "/b").allowed.empty());
}

TEST(Router, RefusesMistakesOfOurs) {
  Router router = sample_router();
  EXPECT_THROW(router.add({.method = "GET", .pattern = "/", .handler = {}}), Error);
  EXPECT_THROW(router.add({.method = "GET", .pattern = "no/slash", .handler = {}}), Error);
  EXPECT_THROW(router.add({.method = "GET", .pattern = "/{rest...}/more", .handler = {}}), Error);
}

TEST(Router, FamilyIsTheFirstSegment) {
  EXPECT_EQ(family_of("/v1/models"), Family::OpenAi);
  EXPECT_EQ(family_of("/v1"), Family::OpenAi);
  EXPECT_EQ(family_of("/v12"), Family::Page);
  EXPECT_EQ(family_of("/sdapi/v1/txt2img"), Family::A1111);
  EXPECT_EQ(family_of("/api/v1/jobs"), Family::Native);
  EXPECT_EQ(family_of("/status/0123"), Family::Dj);
  EXPECT_EQ(family_of("/"), Family::Page);
  EXPECT_EQ(family_of(""), Family::Page);
  EXPECT_EQ(family_of("/index.html"), Family::Page);
}

}  // namespace
}  // namespace flux2
