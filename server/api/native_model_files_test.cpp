#include <gmock/gmock.h>

#include "server/api/model_routes_test.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelFileRoutes : public ModelRoutesTest {
 protected:
  // Puts a file into the models folder and registers all that is there; returns the key of the file.
  std::string added(const char* source, const std::string& name) {
    fs::create_directories((folder_ / "models" / name).parent_path());
    fs::copy_file(fs::path(test::pico_folder()) / source, folder_ / "models" / name);
    const Json found = body_of(*post("/api/v1/models/scan", {{"add", true}}));
    for (const Json& item : found["items"])
      if (item["path"].get<std::string>().ends_with(name)) return item["key"];
    ADD_FAILURE() << found.dump();
    return {};
  }
  Json model(const std::string& key) { return body_of(*get("/api/v1/models/" + key)); }
  Json deletable() { return body_of(*get("/api/v1/models/orphans"))["deletable"]; }
};

TEST_F(ModelFileRoutes, RelatedModels) {
  const std::string vae = registered(), main = added("flux-2-pico.safetensors", "diffusion_models/pico.safetensors");
  const std::string link = "/api/v1/models/" + vae + "/related/" + main;
  EXPECT_EQ(body_of(*send("PUT", link))["related"], Json({main}));
  EXPECT_EQ(status_of(*send("PUT", link)), 200) << "asking twice changes nothing";
  EXPECT_EQ(model(main)["related"], Json({vae})) << "the other one has it too";
  EXPECT_EQ(status_of(*send("PUT", "/api/v1/models/" + vae + "/related/" + vae)), 400);
  EXPECT_EQ(status_of(*send("PUT", "/api/v1/models/" + vae + "/related/nothing")), 404);
  EXPECT_EQ(status_of(*send("PUT", "/api/v1/models/nothing/related/" + vae)), 404);
  EXPECT_EQ(body_of(*send("DELETE", link))["related"], Json::array());
  EXPECT_EQ(model(main)["related"], Json::array());
}

TEST_F(ModelFileRoutes, AMovedFileGetsItsNewPath) {
  const std::string key = registered(), path = "/api/v1/models/" + key;
  ASSERT_EQ(status_of(*send("PATCH", path, {{"name", "mine"}, {"description", "notes"}})), 200);
  const fs::path target = folder_ / "models/other/moved.safetensors";
  fs::create_directories(target.parent_path());
  fs::rename(file(), target);
  EXPECT_EQ(model(key)["state"], "missing");
  const auto relocate = [&](const Json& body) { return send("POST", path + "/relocate", body); };
  api_.is_loaded = [](const std::string&) { return true; };
  EXPECT_EQ(status_of(*relocate({{"path", target.string()}})), 409);
  api_.is_loaded = [](const std::string&) { return false; };
  const Json moved = body_of(*relocate({{"path", target.string()}}));
  EXPECT_EQ(moved["state"], "ready") << moved.dump();
  EXPECT_EQ(moved["path"], target.string());
  EXPECT_EQ(moved["key"], key);
  EXPECT_EQ(moved["name"], "mine");
  EXPECT_EQ(moved["description"], "notes");
  // Refused: another kind of model, a path outside the model folders, nothing there, a path of another record.
  added("flux-2-pico.safetensors", "diffusion_models/pico.safetensors");
  const auto wrong = relocate({{"path", (folder_ / "models/diffusion_models/pico.safetensors").string()}});
  EXPECT_EQ(status_of(*wrong), 400);
  EXPECT_THAT(body_of(*wrong)["error"]["message"].get<std::string>(), HasSubstr("another kind than mine"));
  EXPECT_EQ(status_of(*relocate({{"path", (fs::path(test::pico_folder()) / "ae.safetensors").string()}})), 400);
  EXPECT_EQ(status_of(*relocate({{"path", (folder_ / "models/nothing").string()}})), 404);
  EXPECT_EQ(status_of(*relocate({{"place", "x"}})), 400);
  added("ae.safetensors", "vae/ae.safetensors");
  EXPECT_EQ(status_of(*relocate({{"path", file().string()}})), 400);
  EXPECT_EQ(model(key)["path"], target.string());
}

TEST_F(ModelFileRoutes, FilesWithoutARecordAreListedAndDeleted) {
  ASSERT_EQ(deletable().size(), 1u);
  EXPECT_EQ(deletable()[0]["files"], 1);
  const std::string models = body_of(*get("/api/v1/models/orphans"))["folder"];
  EXPECT_EQ(deletable()[0]["path"], models + "/vae/ae.safetensors");
  EXPECT_EQ(deletable()[0]["bytes"], fs::file_size(file()));
  registered();
  EXPECT_EQ(deletable(), Json::array());
  fs::create_directories(folder_ / "models/old");
  fs::copy_file(file(), folder_ / "models/old/ae.safetensors");
  const Json found = deletable();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["folder"], true);
  const auto remove = [&](const Json& body) { return post("/api/v1/models/orphans/delete", body); };
  EXPECT_EQ(status_of(*remove({{"paths", {found[0]["path"], file().string()}}})), 400) << "one of them belongs to a model";
  EXPECT_EQ(status_of(*remove({{"paths", {"/etc/passwd"}}})), 400);
  EXPECT_EQ(status_of(*remove({{"paths", Json::array()}})), 400);
  EXPECT_EQ(status_of(*remove({{"paths", "x"}})), 400);
  EXPECT_TRUE(fs::exists(folder_ / "models/old/ae.safetensors"));
  const Json done = body_of(*remove({{"paths", {found[0]["path"]}}}));
  EXPECT_EQ(done["deleted"], 1);
  EXPECT_EQ(done["files"], 1);
  EXPECT_EQ(done["bytes"], fs::file_size(file()));
  EXPECT_FALSE(fs::exists(folder_ / "models/old"));
  EXPECT_TRUE(fs::exists(file()));
}

TEST_F(ModelFileRoutes, NothingIsDeletedWhileModelsAreInstalled) {
  const Json found = deletable();
  queue_.submit({.request = {{"source", "x"}}, .kind = "download", .lane = "net"});
  ASSERT_TRUE(store_->claim("net", "worker", "", now_ms()));
  const auto answer = post("/api/v1/models/orphans/delete", {{"paths", {found[0]["path"]}}});
  EXPECT_EQ(status_of(*answer), 409);
  EXPECT_TRUE(fs::exists(file()));
}

}  // namespace
}  // namespace flux2
