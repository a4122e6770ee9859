#include <gmock/gmock.h>

#include "server/api/openapi.h"
#include "server/api/test_studio.h"
#include "server/store/zip_reader.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class NativeShotsTest : public StudioTest {
 protected:
  std::string book_ = send("POST", "/api/v1/projects", {{"name", "Book"}, {"width", 64}, {"height", 64}}, 201)["id"];
  std::string of_book_ = "/api/v1/projects/" + book_;

  Json shot(const Json& body, int status = 201) { return send("POST", of_book_ + "/shots", body, status); }
  static std::string path(const Json& shot) { return "/api/v1/shots/" + shot["id"].get<std::string>(); }
};

TEST_F(NativeShotsTest, ScenesAndShotsAreMadeChangedAndDeleted) {
  const Json scene = send("POST", of_book_ + "/scenes", {{"name", "Forest"}, {"text", "EXT."}}, 201);
  EXPECT_EQ(scene["position"], 1);
  const std::string scene_path = "/api/v1/scenes/" + scene["id"].get<std::string>();
  const Json made = shot({{"action", "Ann runs"}, {"scene_id", scene["id"]}, {"seed", 4}, {"guidance", 1.5}});
  EXPECT_EQ(made["scene_id"], scene["id"]);
  EXPECT_EQ(made["num_frames"], 1);
  EXPECT_EQ(made["status"], "new");
  EXPECT_EQ(made["dialogue"], "");
  EXPECT_EQ(send("PATCH", path(made), {{"seed", nullptr}, {"dialogue", "Run!"}})["seed"], nullptr);
  EXPECT_EQ(send("GET", path(made))["dialogue"], "Run!");
  EXPECT_EQ(send("GET", of_book_ + "/shots")["total"], 1);
  EXPECT_EQ(send("PATCH", scene_path, {{"name", "Wood"}})["name"], "Wood");
  send("DELETE", scene_path, nullptr, 204);
  EXPECT_EQ(send("GET", path(made))["scene_id"], nullptr);
  EXPECT_EQ(send("GET", of_book_ + "/scenes")["total"], 0);
  EXPECT_EQ(shot({{"action", 5}, {"seed", -1}, {"width", 3}, {"guidance", "x"}, {"frames", 1}}, 400)["error"]["fields"].size(),
            5u);
  shot({{"scene_id", scene["id"]}}, 400);
  send("POST", of_book_ + "/scenes", {{"text", "x"}}, 400);
  send("DELETE", path(made), nullptr, 204);
  send("GET", path(made), nullptr, 404);
  send("PATCH", scene_path, {{"name", "x"}}, 404);
}

TEST_F(NativeShotsTest, AShotBecomesAnImage) {
  const Json scene = send("POST", of_book_ + "/scenes", {{"name", "Forest, day"}}, 201);
  send("POST", of_book_ + "/elements", {{"name", "Ann"}, {"type", "character"}, {"description", "red hair"}}, 201);
  send("POST", of_book_ + "/elements", {{"name", "Hut"}, {"type", "location"}, {"description", "old wooden hut roof"}}, 201);
  shot({{"action", "Birds sing"}, {"scene_id", scene["id"]}});
  const Json made =
      shot({{"action", "@Ann runs past an old wooden roof"}, {"dialogue", "A hut!"}, {"scene_id", scene["id"]}, {"seed", 9}});
  const Json matched = send("POST", of_book_ + "/match-elements");
  ASSERT_EQ(matched["items"][1]["matched_elements"].size(), 2u) << matched.dump();
  EXPECT_EQ(matched["items"][1]["matched_elements"][0]["score"], 0.95);
  const Json job = send("POST", path(made) + "/generate", Json::object(), 202);
  EXPECT_EQ(job["kind"], "shot");
  EXPECT_EQ(job["project_id"], book_);
  EXPECT_EQ(job["request"]["seed"], 9);
  EXPECT_EQ(job["resolution"]["prompt"],
            "Forest, day. Dialogue: A hut!. Ann (red hair) runs past an old wooden roof. Before this: Birds sing");
  EXPECT_EQ(send("GET", path(made))["status"], "queued");
  const Json done = finished(job);
  const Json after = send("GET", path(made));
  EXPECT_EQ(after["status"], "completed");
  EXPECT_EQ(after["thumbnail_asset_id"], asset_in(done));
  EXPECT_EQ(after["last_job_id"], job["id"]);
  const Json bare = send("POST", path(made) + "/generate", {{"parts", Json::array()}, {"seed", 1}}, 202);
  EXPECT_EQ(bare["resolution"]["prompt"], "Ann (red hair) runs past an old wooden roof");
  finished(bare);
  send("POST", path(made) + "/generate", {{"parts", {"light"}}}, 400);
  send("PATCH", path(made), {{"num_frames", 24}});
  EXPECT_EQ(send("POST", path(made) + "/generate", Json::object(), 501)["error"]["code"], "video_not_available");
}

TEST_F(NativeShotsTest, ThumbnailsAreQueuedOnce) {
  const Json a = shot({{"action", "Ann runs"}, {"character", "Ann"}}), b = shot({{"action", "Bob sits"}, {"seed", 7}});
  const Json first = send("POST", "/api/v1/shots/thumbnails", {{"ids", {a["id"]}}, {"width", 64}, {"height", 64}}, 202);
  const Json job = send("GET", "/api/v1/jobs/" + first["jobs"][0].get<std::string>());
  EXPECT_EQ(job["request"]["seed"], 42);
  EXPECT_THAT(job["request"]["prompt"].get<std::string>(), HasSubstr("Ann: Ann runs"));
  finished(job);
  const Json second = send("POST", "/api/v1/shots/thumbnails", {{"ids", {a["id"], b["id"]}}}, 202);
  EXPECT_EQ(second["skipped"], Json({a["id"]}));
  EXPECT_EQ(send("GET", "/api/v1/jobs/" + second["jobs"][0].get<std::string>())["request"]["width"], 512);
  EXPECT_EQ(send("POST", "/api/v1/shots/thumbnails", {{"ids", {a["id"]}}, {"force", true}}, 202)["jobs"].size(), 1u);
  send("POST", "/api/v1/shots/thumbnails", {{"ids", {"sht_x"}}}, 404);
  send("POST", "/api/v1/shots/thumbnails", {{"ids", Json::array()}}, 400);
}

TEST_F(NativeShotsTest, ThumbnailsThatTheQueueHasNoRoomForAreAllRefused) {
  const Json a = shot({{"action", "Ann runs"}}), b = shot({{"action", "Bob sits"}});
  for (int64_t i = 1; i < queue_.limit(); ++i) queue_.submit({.request = {{"prompt", "a fox"}}});
  const Json refused = send("POST", "/api/v1/shots/thumbnails", {{"ids", {a["id"], b["id"]}}}, 429);
  EXPECT_EQ(refused["error"]["code"], "queue_full");
  EXPECT_EQ(store_->counts("gpu").queued, queue_.limit() - 1) << "nothing was queued";
  EXPECT_EQ(send("POST", "/api/v1/shots/thumbnails", {{"ids", {a["id"]}}}, 202)["jobs"].size(), 1u);
}

TEST_F(NativeShotsTest, AKeyStandsForAllThumbnailsOfARequest) {
  const Json a = shot({{"action", "Ann runs"}}), b = shot({{"action", "Bob sits"}});
  const auto ask_for_both = [&] {
    ServerRequest request{.method = "POST", .path = "/api/v1/shots/thumbnails"};
    request.headers = {{"content-type", "application/json"}, {"idempotency-key", "once"}};
    request.body = Json{{"ids", {a["id"], b["id"]}}}.dump();
    return body_of(*ask(std::move(request)));
  };
  const Json first = ask_for_both();
  ASSERT_EQ(first["jobs"].size(), 2u) << first.dump();
  EXPECT_NE(first["jobs"][0], first["jobs"][1]);
  EXPECT_EQ(ask_for_both(), first);
}

TEST_F(NativeShotsTest, AProjectGoesThroughAnArchive) {
  if (!zip_reader_available()) GTEST_SKIP() << "built without libzip";
  const std::string image = asset_in(generated({{"prompt", "a fox"}, {"project_id", book_}}));
  send("POST", of_book_ + "/elements", {{"name", "Ann"}, {"type", "character"}, {"images", {image}}}, 201);
  const auto answer = get(of_book_ + "/export");
  ASSERT_TRUE(answer->response);
  EXPECT_EQ(answer->response->content_type, "application/zip");
  std::string bytes;
  for (std::string piece = answer->response->pieces(); !piece.empty(); piece = answer->response->pieces()) bytes += piece;
  EXPECT_EQ(bytes.size(), answer->response->pieces_size);
  const auto upload = [&](const std::string& content) {
    return post_form("/api/v1/projects/import",
                     {file("file", {reinterpret_cast<const std::byte*>(content.data()),
                                    reinterpret_cast<const std::byte*>(content.data()) + content.size()})});
  };
  const auto imported = upload(bytes);
  ASSERT_EQ(status_of(*imported), 201) << imported->response->body;
  const Json copy = body_of(*imported);
  EXPECT_EQ(copy["name"], "Book");
  EXPECT_EQ(copy["images"], 1);
  EXPECT_NE(copy["id"], book_);
  const Json elements = send("GET", "/api/v1/projects/" + copy["id"].get<std::string>() + "/elements");
  EXPECT_EQ(elements["items"][0]["images"].size(), 1u);
  EXPECT_NE(elements["items"][0]["images"][0], image);
  EXPECT_EQ(status_of(*upload("no archive")), 400);
  EXPECT_EQ(body_of(*upload(bytes.substr(0, bytes.size() / 2)))["error"]["code"], "invalid_archive");
  EXPECT_EQ(status_of(*post_form("/api/v1/projects/import", {})), 400);
  send("POST", "/api/v1/projects/import", Json::object(), 415);
  const Route& import = *router_.find("POST", "/api/v1/projects/import").route;
  EXPECT_EQ(import.form_limit, uint64_t{16} << 30);
  EXPECT_EQ(import.body_limit, 1u << 20) << "any other body is held in memory";
  EXPECT_EQ(send("GET", "/api/v1/projects")["total"], 3);
  EXPECT_TRUE(openapi_document(router_)["paths"]["/api/v1/projects/{id}/export"]["get"]["responses"]["2XX"]["content"].contains(
      "application/zip"));
}

}  // namespace
}  // namespace flux2
