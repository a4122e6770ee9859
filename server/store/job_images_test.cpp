#include "server/store/job_images.h"

#include <gtest/gtest.h>

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_store.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

TEST(JobImages, AnImageOfTwoJobsIsUsedUntilBothHaveDroppedIt) {
  const auto folder = server_test_folder();
  const auto store = open_sqlite_store(folder / "flux2.db");
  AssetStore assets(folder);
  const auto bytes = encode_png(test_image(20, 10, 3, 1));
  std::vector<std::string> jobs, ids;
  for (int i = 0; i < 2; ++i) {
    Job job;
    job.id = new_id();
    job.kind = "generate";
    job.lane = "gpu";
    job.request = {{"prompt", "a"}};
    store->insert(job, 10);
    const auto claimed = store->claim("gpu", "w", {}, now_ms());
    ASSERT_TRUE(claimed);
    const Asset asset = assets.put(bytes, {.kind = "image", .job = claimed->id});
    ASSERT_TRUE(store->add_image(claimed->id, "w", {.index = 0, .asset = asset.id, .seed = 1, .width = 20, .height = 10}));
    jobs.push_back(claimed->id);
    ids.push_back(asset.id);
  }
  ASSERT_EQ(ids[0], ids[1]) << "equal bytes are stored once";

  const auto first = drop_job_image(assets.database(), jobs[0], 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->asset, ids[0]);
  EXPECT_TRUE(first->is_used);
  EXPECT_TRUE(store->get(jobs[0])->images.empty());
  EXPECT_EQ(store->get(jobs[1])->images.size(), 1u);
  EXPECT_FALSE(drop_job_image(assets.database(), jobs[0], 0)) << "it is gone";

  const auto second = drop_job_image(assets.database(), jobs[1], 0);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->is_used);
}

}  // namespace
}  // namespace flux2
