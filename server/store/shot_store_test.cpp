#include "server/store/shot_store.h"

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/ids.h"
#include "server/store/test_database.h"

namespace flux2 {
namespace {

class ShotStoreTest : public BothDatabasesTest {
 protected:
  ShotStore shots() { return ShotStore(*database_); }
  StoryScene scene(const std::string& name) {
    const StoryScene made{.id = new_id(), .project = {}, .name = name, .text = "EXT. FOREST", .position = 0};
    shots().insert_scene(made);
    return made;
  }
  Shot shot(const std::string& scene, const Json& fields) {
    Shot made;
    made.id = new_id();
    made.scene = scene;
    made.fields = fields;
    made.created = 5;
    shots().insert(made);
    return made;
  }
};
INSTANTIATE_BOTH_DATABASES(ShotStoreTest);

TEST_P(ShotStoreTest, KeepsScenesAndShotsInOrder) {
  StoryScene first = scene("One"), second = scene("Two");
  const Shot b = shot(second.id, {{"action", "b"}}), a = shot(first.id, {{"action", "a"}}), loose = shot("", {{"action", "c"}});
  auto list = shots().list("");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].id, loose.id);
  EXPECT_EQ(list[1].id, a.id);
  EXPECT_EQ(list[2].id, b.id);
  second.position = -1;
  second.name = "Before";
  shots().save_scene(second);
  EXPECT_EQ(shots().scenes("")[0].name, "Before");
  EXPECT_EQ(shots().scenes("")[0].text, "EXT. FOREST");
  EXPECT_EQ(shots().count(""), 5);
  EXPECT_TRUE(shots().remove_scene(second.id));
  EXPECT_FALSE(shots().remove_scene(second.id));
  EXPECT_EQ(shots().get(b.id)->scene, "") << "its shots stay";
}

TEST_P(ShotStoreTest, ChangesAndRemovesShots) {
  Shot one = shot("", {{"action", "a"}, {"seed", 3}});
  one.fields["action"] = "runs";
  one.matched = {{{"element", "x"}, {"score", 0.75}}};
  one.position = 9;
  shots().save(one);
  shots().set_last_job(one.id, "JOB");
  const auto found = shots().get(one.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fields, one.fields);
  EXPECT_EQ(found->matched, one.matched);
  EXPECT_EQ(found->position, 9);
  EXPECT_EQ(found->last_job, "JOB");
  EXPECT_EQ(found->created, 5);
  EXPECT_TRUE(shots().remove(one.id));
  EXPECT_FALSE(shots().get(one.id));
}

TEST_P(ShotStoreTest, TheFirstImageOfItsJobIsItsThumbnail) {
  const Shot one = shot("", {{"action", "a"}});
  Job job;
  job.id = new_id();
  job.kind = "shot";
  job.request = {{"kind", "generate"}, {"prompt", "x"}, {"resolution", {{"shot", one.id}}}};
  job.created = now_ms();
  jobs_->insert(job, 10);
  ASSERT_TRUE(jobs_->claim("gpu", "w", "", now_ms()));
  const std::string made = assets_->put(encode_png(test_image(16, 16, 3, 1)), {.project = {}, .kind = "image"}).id;
  ASSERT_TRUE(jobs_->add_image(job.id, "w", {.index = 0, .asset = made, .seed = 1, .width = 16, .height = 16}));
  EXPECT_EQ(shots().get(one.id)->thumbnail, made);
  assets_->remove(made);
  EXPECT_EQ(shots().get(one.id)->thumbnail, "");
}

TEST_P(ShotStoreTest, ScenesAtOnePlaceKeepTheirShotsTogether) {
  StoryScene first = scene("One"), second = scene("Two");
  first.position = second.position = 5;
  shots().save_scene(first);
  shots().save_scene(second);
  std::vector<std::string> made;
  for (int i = 0; i < 2; ++i)
    for (const std::string& id : {first.id, second.id}) {
      Shot one = shot(id, {{"action", "a"}});
      one.position = i;
      shots().save(one);
      made.push_back(one.id);
    }
  std::vector<std::string> listed;
  for (const Shot& one : shots().list("")) listed.push_back(one.id);
  EXPECT_EQ(listed, (std::vector<std::string>{made[0], made[2], made[1], made[3]}));
}

TEST_P(ShotStoreTest, MatchesLeaveTheRestOfAShotAlone) {
  const Shot before = shot("", {{"action", "walks"}});
  Shot changed = before;
  changed.fields["action"] = "runs";  // while the elements of the shot are being matched
  changed.position = 9;
  shots().save(changed);
  shots().set_matched(before.id, {{{"element", "x"}, {"score", 0.75}}});
  const auto found = shots().get(before.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fields["action"], "runs");
  EXPECT_EQ(found->position, 9);
  EXPECT_EQ(found->matched[0]["element"], "x");
}

}  // namespace
}  // namespace flux2
