#include "server/api/native.h"
#include "server/api/test_api.h"
#include "server/store/asset_catalog.h"

namespace flux2 {
namespace {

class NativeJobs : public ApiTest {
 protected:
  NativeJobs() { add_job_routes(router_, api_); }

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

TEST_F(NativeJobs, AMissingLoraSaysNothingAboutFolders) {
  const auto peer = post("/api/v1/jobs", {{"prompt", "a fox"}, {"loras", {{{"name", "ink"}}}}});
  EXPECT_EQ(status_of(*peer), 404);
  const Json error = body_of(*peer)["error"];
  EXPECT_EQ(error["message"], "loras: no LoRA is called ink");
  EXPECT_EQ(error["hint"], "GET /api/v1/loras lists the names");
}

TEST_F(NativeJobs, ARunningJobKeepsItsImages) {
  const Json job = body_of(*post("/api/v1/jobs", {{"prompt", "a fox"}, {"width", 64}, {"height", 64}}));
  const Job claimed = claim();
  EXPECT_EQ(removed("/api/v1/jobs/job_" + claimed.id + "/images/0"), 409);
}

}  // namespace
}  // namespace flux2
