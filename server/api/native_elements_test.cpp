#include <gmock/gmock.h>

#include "base/base64.h"
#include "server/api/openapi.h"
#include "server/api/test_studio.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class NativeElementsTest : public StudioTest {
 protected:
  std::string book_ = send("POST", "/api/v1/projects", {{"name", "Book"}}, 201)["id"];

  Json element(const Json& body, int status = 201) {
    return send("POST", "/api/v1/projects/" + book_ + "/elements", body, status);
  }
  std::string uploaded(int seed) {
    Image image(32, 32, 3);
    image.pixels[0] = static_cast<uint8_t>(seed);
    const auto peer = post_form("/api/v1/uploads", {file("file", encode_png(image))});
    return body_of(*peer)["id"];
  }
};

TEST_F(NativeElementsTest, ElementsAreMadeChangedAndDeleted) {
  const Json hero = element({{"name", " Tall Hero "}, {"type", "character"}, {"description", "red coat"}});
  EXPECT_EQ(hero["name"], "Tall Hero");
  EXPECT_EQ(hero["trigger"], "@TallHero");
  EXPECT_EQ(hero["max_refs"], 1);
  EXPECT_EQ(hero["project_id"], book_);
  EXPECT_EQ(hero["images"], Json::array());
  EXPECT_EQ(hero["thumb_url"], nullptr);
  const std::string path = "/api/v1/elements/" + hero["id"].get<std::string>(), face = uploaded(1), back = uploaded(2);
  const Json changed = send(
      "PATCH", path,
      {{"trigger", "@hero"}, {"images", {face, back, face}}, {"max_refs", 2}, {"loras", {{{"name", "hero"}, {"weight", 0.5}}}}});
  EXPECT_EQ(changed["images"], Json({face, back}));
  EXPECT_EQ(changed["loras"][0]["weight"], 0.5);
  EXPECT_EQ(send("GET", path), changed);
  EXPECT_EQ(send("PATCH", path, {{"description", nullptr}, {"trigger", nullptr}})["trigger"], "@TallHero");
  EXPECT_EQ(send("GET", "/api/v1/projects/" + book_ + "/elements")["total"], 1);
  send("DELETE", path, nullptr, 204);
  send("GET", path, nullptr, 404);
  send("GET", "/api/v1/assets/" + face);
}

TEST_F(NativeElementsTest, WhatIsWrongIsNamed) {
  const Json wrong =
      element({{"type", "ghost"}, {"trigger", "no at"}, {"max_refs", 99}, {"loras", {{{"weight", 1}}}}, {"x", 1}}, 400);
  EXPECT_EQ(wrong["error"]["fields"].size(), 6u) << wrong.dump();
  element({{"name", "!!"}, {"type", "style"}}, 400);
  element({{"name", "A"}, {"type", "style"}, {"images", {"ast_x"}}}, 400);
  element({{"name", "Hero"}, {"type", "style"}});
  EXPECT_EQ(element({{"name", "HERO"}, {"type", "object"}}, 409)["error"]["code"], "trigger_taken");
  send("POST", "/api/v1/projects/prj_x/elements", {{"name", "A"}, {"type", "style"}}, 404);
  send("GET", "/api/v1/elements/elm_x", nullptr, 404);
  // The same trigger may be used by an element that is shared.
  const Json shared = send("POST", "/api/v1/projects/default/elements", {{"name", "Hero"}, {"type", "style"}}, 201);
  EXPECT_EQ(shared["project_id"], nullptr);
  EXPECT_EQ(send("GET", "/api/v1/projects/" + book_ + "/elements?include_shared=1")["total"], 2);
}

TEST_F(NativeElementsTest, ImagesComeAsUploadAssetOrData) {
  const std::string path = "/api/v1/elements/" + element({{"name", "Hero"}, {"type", "character"}})["id"].get<std::string>();
  const std::string face = uploaded(1);
  EXPECT_EQ(send("POST", path + "/images", {{"asset_id", face}}, 201)["images"].size(), 1u);
  Image image(16, 16, 3);
  const auto bytes = encode_png(image);
  EXPECT_EQ(send("POST", path + "/images", {{"image", base64_encode(bytes)}}, 201)["images"].size(), 2u);
  image.pixels[0] = 7;
  EXPECT_EQ(body_of(*post_form(path + "/images", {file("file", encode_png(image))}))["images"].size(), 3u);
  send("POST", path + "/images", {{"asset_id", "ast_" + new_id()}}, 400);
  send("POST", path + "/images", Json::object(), 400);
  // An image of an element is not deleted by accident.
  const Json refused = send("DELETE", "/api/v1/assets/" + face, nullptr, 409);
  EXPECT_EQ(refused["error"]["code"], "in_use");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("Hero"));
  EXPECT_EQ(send("POST", "/api/v1/assets/bulk", {{"ids", {face}}, {"action", "trash"}})["failed"][0]["code"], "in_use");
  send("DELETE", path + "/images/" + face, nullptr, 204);
  send("DELETE", path + "/images/" + face, nullptr, 404);
  send("DELETE", "/api/v1/assets/" + face, nullptr, 204);
  const std::string second = send("GET", path)["images"][0];
  send("DELETE", "/api/v1/assets/" + second + "?force=1", nullptr, 204);
}

TEST_F(NativeElementsTest, TheReportIsWhatAJobUses) {
  const std::string face = uploaded(1);
  element({{"name", "Hero"}, {"type", "character"}, {"description", "red coat"}, {"images", {face}}});
  const Json request = {{"prompt", "@hero rides"}, {"project_id", book_}, {"seed", 3}, {"width", 64}, {"height", 64}};
  const Json report = send("POST", "/api/v1/resolve", request);
  EXPECT_EQ(report["prompt"], "Hero (red coat) rides");
  EXPECT_EQ(report["references"][0]["asset_id"], face);
  EXPECT_EQ(report["matched"][0]["trigger"], "@Hero");
  const Json job = generated(request);
  EXPECT_EQ(job["resolution"], report);
  EXPECT_EQ(job["request"]["prompt"], "@hero rides");
  EXPECT_FALSE(job["request"].contains("references"));
  EXPECT_EQ(send("GET", "/api/v1/assets/" + asset_in(job))["prompt"], "@hero rides");
  send("POST", "/api/v1/resolve", {{"prompt", "x"}, {"elements", {"Nobody"}}}, 400);
  EXPECT_EQ(send("POST", "/api/v1/resolve", {{"prompt", "x"}})["references"], Json::array());
}

TEST_F(NativeElementsTest, VisualsBecomeImagesOfTheElement) {
  const std::string path =
      "/api/v1/elements/" +
      element({{"name", "Hero"}, {"type", "character"}, {"description", "red coat"}})["id"].get<std::string>();
  const Json job = send("POST", path + "/visualize", {{"width", 64}, {"height", 64}, {"seed", 5}}, 202);
  EXPECT_EQ(job["kind"], "element_visual");
  EXPECT_EQ(job["project_id"], book_);
  EXPECT_THAT(job["request"]["prompt"].get<std::string>(), HasSubstr("turnaround of Hero: red coat"));
  const Json done = finished(job);
  EXPECT_EQ(send("GET", path)["images"][0], asset_in(done));
  send("POST", path + "/visualize", {{"size", 3}}, 400);
}

TEST_F(NativeElementsTest, TheDocumentDescribesBothBodies) {
  const Json document = openapi_document(router_);
  const Json& content = document["paths"]["/api/v1/elements/{id}/images"]["post"]["requestBody"]["content"];
  EXPECT_TRUE(content.contains("application/json"));
  EXPECT_TRUE(content.contains("multipart/form-data"));
  EXPECT_EQ(document["paths"]["/api/v1/resolve"]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/JobRequest");
}

}  // namespace
}  // namespace flux2
