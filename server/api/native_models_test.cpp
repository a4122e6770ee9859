#include "server/api/native_models.h"

#include "server/api/model_routes_test.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class ModelRoutes : public ModelRoutesTest {};

TEST_F(ModelRoutes, ScanListAndOne) {
  const Json looked = body_of(*post("/api/v1/models/scan", Json::object()));
  ASSERT_EQ(looked["items"].size(), 1u);
  EXPECT_EQ(looked["items"][0]["installed"], false);
  EXPECT_EQ(looked["added"], 0);
  const std::string key = registered();
  EXPECT_EQ(changes_, 1);
  const Json list = body_of(*send("GET", "/api/v1/models?type=vae"));
  ASSERT_EQ(list["items"].size(), 1u);
  EXPECT_EQ(list["items"][0]["key"], key);
  EXPECT_EQ(list["items"][0]["state"], "ready");
  EXPECT_EQ(list["items"][0]["loaded"], false);
  EXPECT_EQ(body_of(*send("GET", "/api/v1/models?type=lora"))["items"].size(), 0u);
  EXPECT_EQ(body_of(*get("/api/v1/models/" + key))["type"], "vae");
  EXPECT_EQ(status_of(*get("/api/v1/models/nothing")), 404);
  const Json disk = body_of(*get("/api/v1/models/disk"));
  EXPECT_EQ(disk["items"][0]["type"], "vae");
  EXPECT_EQ(disk["items"][0]["bytes"], fs::file_size(file()));
}

TEST_F(ModelRoutes, ChangesWhatPeopleWrite) {
  const std::string key = registered(), path = "/api/v1/models/" + key;
  const Json changed = body_of(*send("PATCH", path,
                                     {{"name", "mine"},
                                      {"description", "small"},
                                      {"trigger_phrases", {"ink", "wash"}},
                                      {"defaults", {{"steps", 7}, {"guidance", 2.5}}}}));
  EXPECT_EQ(changed["name"], "mine");
  EXPECT_EQ(changed["trigger_phrases"], Json({"ink", "wash"}));
  EXPECT_EQ(changed["defaults"], Json({{"steps", 7}, {"guidance", 2.5}}));
  EXPECT_EQ(body_of(*send("PATCH", path, {{"defaults", {{"steps", nullptr}}}}))["defaults"], Json({{"guidance", 2.5}}));
  for (const Json& bad : {Json({{"defaults", {{"steps", 0}}}}), Json({{"defaults", {{"steps", "many"}}}}), Json({{"nam", "x"}}),
                          Json({{"name", "a/b"}}), Json({{"components", {{"vae", "nothing"}}}}),
                          Json({{"trigger_phrases", "ink"}}), Json({{"cover_asset", "ast_00000000000000000000000000"}})})
    EXPECT_EQ(status_of(*send("PATCH", path, bad)), 400) << bad.dump();
  // Reading the file again keeps all of it.
  const Json again = body_of(*send("POST", path + "/identify"));
  EXPECT_EQ(again["name"], "mine");
  EXPECT_EQ(again["key"], key);
  EXPECT_EQ(again["description"], "small");
  EXPECT_FALSE(again["evidence"].empty());
}

TEST_F(ModelRoutes, ALoadedModelStays) {
  const std::string path = "/api/v1/models/" + registered();
  api_.is_loaded = [](const std::string&) { return true; };
  EXPECT_EQ(status_of(*send("DELETE", path)), 409);
  api_.is_loaded = [](const std::string&) { return false; };
  EXPECT_EQ(status_of(*send("DELETE", path)), 200);
  EXPECT_TRUE(fs::exists(file())) << "only the record goes";
  const std::string again = "/api/v1/models/" + registered() + "?files=1";
  EXPECT_EQ(status_of(*send("DELETE", again)), 200);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(ModelRoutes, PathsOnlyBelowTheRoots) {
  EXPECT_EQ(body_of(*post("/api/v1/models/identify", {{"path", file().string()}}))["items"][0]["type"], "vae");
  const auto refusal = [&](const std::string& path, const char* route) {
    const auto peer = post(route, {{"path", path}});
    EXPECT_EQ(status_of(*peer), 400);
    return body_of(*peer)["error"]["message"];
  };
  for (const char* route : {"/api/v1/models/identify", "/api/v1/models/scan"})
    EXPECT_EQ(refusal(test::pico_folder(), route), refusal("/no/such/folder", route));
}

TEST_F(ModelRoutes, StartersTokensMissingOrphansAndFit) {
  const Json sets = body_of(*get("/api/v1/models/starter"));
  ASSERT_GT(sets["items"].size(), 0u);
  EXPECT_EQ(sets["items"][0]["parts"][0]["present"], false);
  EXPECT_EQ(body_of(*get("/api/v1/settings/hub-token"))["set"], false);
  EXPECT_EQ(body_of(*get("/api/v1/models/orphans"))["items"].size(), 1u);
  registered();
  EXPECT_EQ(body_of(*get("/api/v1/models/orphans"))["items"].size(), 0u);
  EXPECT_EQ(body_of(*get("/api/v1/models/missing"))["items"].size(), 0u);
  fs::remove(file());
  EXPECT_EQ(body_of(*get("/api/v1/models/missing"))["items"][0]["state"], "missing");
  EXPECT_EQ(body_of(*get("/api/v1/models/pico/fit"))["fits"], true);
  EXPECT_EQ(status_of(*get("/api/v1/models/nothing/fit")), 404);
  EXPECT_EQ(status_of(*send("GET", "/api/v1/models/hub?repo=x")), 400);
}

}  // namespace
}  // namespace flux2
