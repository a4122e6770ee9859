#include <gtest/gtest.h>

#include "server/jobs/job_queue.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

class JobJson : public ::testing::Test {
 protected:
  std::unique_ptr<JobStore> store_ = open_sqlite_store(server_test_folder() / "flux2.db");
};

TEST_F(JobJson, ShowsACompletedJob) {
  Job job;
  job.id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
  job.kind = "generate";
  job.state = "completed";
  job.project = "01ARZ3NDEKTSV4RRFFQ69G5FAW";
  job.client_ref = "ref";
  job.request = {{"prompt", "a fox"}};
  job.resolved = {{"seed", 42}};
  job.result = {{"warnings", {"w"}}, {"timings_ms", {{"total", 12}}}, {"peak_vram", 1024}};
  job.step = job.steps = 4;
  job.progress = 1;
  job.created = 1'709'210'096'789;
  job.started = job.created + 1;
  job.finished = job.created + 1000;
  job.images = {{.index = 0, .asset = "01ARZ3NDEKTSV4RRFFQ69G5FAX", .seed = 42, .width = 64, .height = 32}};
  EXPECT_EQ(job_to_json(job, *store_), parse_json(R"({
    "id": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": "generate", "state": "completed", "phase": null, "progress": 1.0,
    "step": 4, "steps": 4, "queue_position": null, "eta_s": null, "message": "",
    "project_id": "prj_01ARZ3NDEKTSV4RRFFQ69G5FAW", "client_ref": "ref", "priority": 0,
    "created_at": "2024-02-29T12:34:56.789Z", "started_at": "2024-02-29T12:34:56.790Z", "finished_at": "2024-02-29T12:34:57.789Z",
    "request": {"prompt": "a fox"}, "resolved": {"seed": 42},
    "images": [{"index": 0, "seed": 42, "width": 64, "height": 32, "asset_id": "ast_01ARZ3NDEKTSV4RRFFQ69G5FAX",
                "url": "/api/v1/jobs/job_01ARZ3NDEKTSV4RRFFQ69G5FAV/images/0",
                "thumb_url": "/api/v1/jobs/job_01ARZ3NDEKTSV4RRFFQ69G5FAV/images/0?thumb=1"}],
    "rewritten_prompt": null, "warnings": ["w"], "timings_ms": {"total": 12}, "peak_vram": 1024, "error": null})"));
  EXPECT_FALSE(job_to_json(job, *store_, false).contains("request"));
}

TEST_F(JobJson, ShowsThePlaceOfAWaitingJob) {
  Job job;
  for (int i = 0; i < 2; ++i) {
    job.id = new_id();
    job.kind = "generate";
    job = store_->insert(job, 10).job;
  }
  const Json json = job_to_json(job, *store_);
  EXPECT_EQ(json["queue_position"], 2);
  EXPECT_EQ(json["started_at"], nullptr);
  EXPECT_EQ(json["project_id"], nullptr);
  EXPECT_EQ(json["client_ref"], nullptr);
  EXPECT_EQ(json["resolved"], nullptr);
  EXPECT_EQ(json["images"], Json::array());
  EXPECT_EQ(json["warnings"], Json::array());
  EXPECT_EQ(json["timings_ms"], Json::object());
  EXPECT_EQ(json["peak_vram"], 0);
}

TEST_F(JobJson, EstimatesTheTimeLeft) {
  Job job;
  job.state = "running";
  job.started = now_ms() - 3000;
  job.progress = 0.75;
  EXPECT_NEAR(job_to_json(job, *store_)["eta_s"].get<double>(), 1.0, 0.2);
  job.progress = 0;
  EXPECT_EQ(job_to_json(job, *store_)["eta_s"], nullptr);
}

}  // namespace
}  // namespace flux2
