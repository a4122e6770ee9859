#include "server/api/native.h"
#include "server/api/test_api.h"
#include "server/jobs/job_kinds.h"
#include "server/store/asset_catalog.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {
namespace {

class NativeJobs : public ApiTest {
 protected:
  NativeJobs() {
    add_job_routes(router_, api_);
    add_event_routes(router_, api_);
  }

  std::string queued(const std::string& lane = "gpu", const std::string& kind = "generate", const std::string& project = {}) {
    const Json request = {{"kind", kind}, {"prompt", "a fox"}};
    return queue_.submit({.request = request, .kind = kind, .project = project, .lane = lane}).job.id;
  }
  std::string state_of(const std::string& id) { return store_->get(id)->state; }

  // A finished job with one image, which is the same for every job. The address of the image.
  std::string image_of_new_job() {
    const Json job = body_of(*post("/api/v1/jobs", {{"prompt", "a fox"}, {"width", 64}, {"height", 64}}));
    complete(claim());
    return "/api/v1/jobs/" + job["id"].get<std::string>() + "/images/0";
  }
  int removed(const std::string& path) { return status_of(*ask({.method = "DELETE", .path = path})); }
};

TEST_F(NativeJobs, AnImageThatAnotherJobShowsIsNotDeleted) {
  const std::string first = image_of_new_job(), second = image_of_new_job();
  const std::string asset = assets_.list({.kind = "image"}).at(0).id;
  ASSERT_EQ(assets_.count({.kind = "image"}), 1) << "equal bytes are stored once";
  EXPECT_EQ(removed(first), 204);
  EXPECT_EQ(removed(first), 404);
  EXPECT_EQ(status_of(*get(first)), 404);
  EXPECT_EQ(status_of(*get(second)), 200);
  EXPECT_EQ(AssetCatalog(assets_.database()).get(asset)->deleted, 0);

  EXPECT_EQ(removed(second), 204);
  EXPECT_NE(AssetCatalog(assets_.database()).get(asset)->deleted, 0) << "now it is in the trash";
}

TEST_F(NativeJobs, AnUnknownStateIsRefused) {
  const auto listed = [&](const std::string& state) {
    return status_of(*ask({.method = "GET", .path = "/api/v1/jobs", .query = {{"state", state}}}));
  };
  EXPECT_EQ(listed("queued"), 200);
  EXPECT_EQ(listed("cancelling"), 200);
  EXPECT_EQ(listed("finished"), 400) << "an empty list would look like an answer";
}

TEST_F(NativeJobs, AnUnknownKindIsRefused) {
  const auto listed = [&](const std::string& kind) {
    return ask({.method = "GET", .path = "/api/v1/jobs", .query = {{"kind", kind}}});
  };
  const std::string download = queued("net", "download");
  queued();
  for (const std::string& kind : job_kinds()) EXPECT_EQ(status_of(*listed(kind)), 200) << kind;
  const Json items = body_of(*listed("download"))["items"];
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0]["id"], "job_" + download);
  EXPECT_EQ(body_of(*listed(""))["items"].size(), 2u) << "an empty one means all";
  const auto refused = listed("images");
  EXPECT_EQ(status_of(*refused), 400) << "an empty list would look like an answer";
  const std::string message = body_of(*refused)["error"]["message"];
  for (const std::string& kind : job_kinds()) EXPECT_NE(message.find(kind), std::string::npos) << message;
}

TEST_F(NativeJobs, AMissingLoraSaysNothingAboutFolders) {
  const auto peer = post("/api/v1/jobs", {{"prompt", "a fox"}, {"loras", {{{"name", "ink"}}}}});
  EXPECT_EQ(status_of(*peer), 404);
  const Json error = body_of(*peer)["error"];
  EXPECT_EQ(error["message"], "loras: no LoRA is called ink");
  EXPECT_EQ(error["hint"], "GET /api/v1/loras lists the names");
}

TEST_F(NativeJobs, SeveralJobsAreCancelled) {
  const std::string project = new_id();
  const std::string one = queued(), two = queued(), three = queued("gpu", "generate", project), four = queued();
  const auto cancelled = [&](const Json& body) { return body_of(*post("/api/v1/jobs/cancel", body))["cancelled"]; };
  EXPECT_EQ(cancelled({{"ids", {"job_" + one, "job_" + new_id()}}}), Json({"job_" + one}));
  EXPECT_EQ(cancelled({{"project", "prj_" + project}}), Json({"job_" + three}));
  EXPECT_EQ(state_of(two), "queued");
  for (const Json& wrong :
       {Json::object(), Json{{"all", false}}, Json{{"al", true}}, Json{{"all", true}, {"force", true}}, Json{{"ids", {"x"}}},
        Json{{"ids", "job_" + two}}, Json{{"project", 1}}, Json{{"project", "x"}}, Json{{"all", true}, {"project", "default"}}})
    EXPECT_EQ(status_of(*post("/api/v1/jobs/cancel", wrong)), 400) << wrong;
  EXPECT_EQ(state_of(two), "queued");
  EXPECT_EQ(cancelled({{"project", "default"}}).size(), 2u);
  EXPECT_EQ(state_of(four), "cancelled");
  EXPECT_EQ(cancelled({{"all", true}}), Json::array());
}

TEST_F(NativeJobs, AKeyForImagesDoesNotTouchJobsOfManagers) {
  const std::string image = queued(), download = queued("net", "download"), training = queued("gpu", "train");
  const auto status = [&](Scope scope, const std::string& method, const std::string& path, const std::string& body = "{}") {
    ServerRequest request{.method = method, .path = "/api/v1/jobs/" + path};
    request.body = body;
    request.caller = {.key = "k", .name = "", .limits = {}, .scope = scope};
    return status_of(*ask(std::move(request)));
  };
  for (const std::string& id : {download, training}) {
    EXPECT_EQ(status(Scope::Generate, "POST", "job_" + id + "/cancel"), 403);
    EXPECT_EQ(status(Scope::Generate, "DELETE", "job_" + id), 403);
    EXPECT_EQ(status(Scope::Generate, "POST", "job_" + id + "/retry"), 403);
    EXPECT_EQ(status(Scope::Generate, "POST", "cancel", Json{{"ids", {"job_" + image, "job_" + id}}}.dump()), 403);
  }
  EXPECT_EQ(state_of(image), "queued") << "all or none";
  EXPECT_EQ(status(Scope::Generate, "POST", "cancel", R"({"all":true})"), 200);
  EXPECT_EQ(state_of(image), "cancelled");
  EXPECT_EQ(state_of(download), "queued");
  EXPECT_EQ(state_of(training), "queued");
  EXPECT_EQ(status(Scope::Generate, "POST", "job_" + image + "/retry"), 202);
  EXPECT_EQ(status(Scope::Manage, "POST", "job_" + download + "/cancel"), 200);
  EXPECT_EQ(status(Scope::Manage, "POST", "job_" + download + "/retry"), 202);
  EXPECT_EQ(status(Scope::Manage, "DELETE", "job_" + download), 204);
}

TEST_F(NativeJobs, AnEventStreamThatCannotBeginIsClosed) {
  const std::string id = queued();
  open_sqlite(folder_ / "flux2.db")->writing([](SqlConnection& sql) { sql.run("ALTER TABLE events RENAME TO gone"); });
  for (const std::string& path : {std::string("/api/v1/events"), "/api/v1/jobs/job_" + id + "/events"}) {
    const auto peer = get(path);
    ASSERT_TRUE(peer->channel);
    EXPECT_TRUE(peer->channel->closed) << path;
    EXPECT_FALSE(events_.anybody_listens()) << path;
  }
}

TEST_F(NativeJobs, ARunningJobKeepsItsImages) {
  const Json job = body_of(*post("/api/v1/jobs", {{"prompt", "a fox"}, {"width", 64}, {"height", 64}}));
  const Job claimed = claim();
  EXPECT_EQ(removed("/api/v1/jobs/job_" + claimed.id + "/images/0"), 409);
}

}  // namespace
}  // namespace flux2
