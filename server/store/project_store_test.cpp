#include "server/store/project_store.h"

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_catalog.h"
#include "server/store/ids.h"
#include "server/store/test_database.h"

namespace flux2 {
namespace {

class ProjectStoreTest : public BothDatabasesTest {
 protected:
  ProjectStore projects() { return ProjectStore(*database_); }
  AssetCatalog catalog() { return AssetCatalog(*database_); }

  Project added(const std::string& name) {
    Project project;
    project.id = new_id();
    project.name = name;
    project.created = project.updated = now_ms();
    projects().insert(project);
    return project;
  }
  Asset put(unsigned seed, const std::string& project) {
    return assets_->put(encode_png(test_image(16, 16, 3, seed)), {.project = project, .kind = "image"});
  }
};
INSTANTIATE_BOTH_DATABASES(ProjectStoreTest);

TEST_P(ProjectStoreTest, TheDefaultProjectAlwaysExists) {
  const auto all = projects().list();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].id, "");
  EXPECT_EQ(all[0].name, "Default");
  EXPECT_FALSE(projects().trash("", ProjectStore::Images::Trash, now_ms()));
}

TEST_P(ProjectStoreTest, KeepsNamesSettingsAndCounts) {
  Project book = added("Book");
  const Project film = added("Film");
  put(1, book.id);
  put(2, book.id);
  book.name = "The Book";
  book.settings = {{"width", 512}, {"style_prompt", "ink"}};
  book.updated = 77;
  projects().save(book);
  const auto found = projects().get(book.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "The Book");
  EXPECT_EQ(found->settings, book.settings);
  EXPECT_EQ(found->updated, 77);
  EXPECT_EQ(found->images, 2);
  const auto all = projects().list();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].id, "");
  EXPECT_EQ(all[1].id, film.id);
  EXPECT_FALSE(projects().get(new_id()));
}

TEST_P(ProjectStoreTest, ADeletedProjectComesBackWithItsImages) {
  const Project book = added("Book");
  const Asset kept = put(1, book.id), thrown_away = put(2, book.id);
  catalog().trash(thrown_away.id, 500);
  EXPECT_TRUE(projects().trash(book.id, ProjectStore::Images::Trash, 1000));
  EXPECT_FALSE(projects().trash(book.id, ProjectStore::Images::Trash, 1001));
  EXPECT_EQ(projects().list().size(), 1u);
  EXPECT_EQ(projects().list(true).size(), 1u);
  EXPECT_EQ(catalog().get(kept.id)->deleted, 1000);
  EXPECT_TRUE(projects().restore(book.id));
  EXPECT_FALSE(projects().restore(book.id));
  EXPECT_EQ(catalog().get(kept.id)->deleted, 0);
  EXPECT_EQ(catalog().get(thrown_away.id)->deleted, 500) << "it was in the trash before";
}

TEST_P(ProjectStoreTest, ImagesCanStayWhenAProjectGoes) {
  const Project book = added("Book");
  const Asset only = put(1, book.id), twice = put(2, book.id), there = put(2, "");
  EXPECT_TRUE(projects().trash(book.id, ProjectStore::Images::Keep, 1000));
  EXPECT_EQ(catalog().get(only.id)->asset.project, "");
  EXPECT_EQ(catalog().get(only.id)->deleted, 0);
  EXPECT_EQ(catalog().get(twice.id)->deleted, 1000) << "the default project has these bytes";
  EXPECT_EQ(catalog().get(there.id)->deleted, 0);
}

TEST_P(ProjectStoreTest, AnImageThatStaysLeavesTheTrashOfTheDefaultProject) {
  const Project book = added("Book");
  const Asset twice = put(2, book.id), there = put(2, ""), thrown_away = put(3, book.id), other = put(3, "");
  catalog().trash(there.id, 500);
  catalog().trash(thrown_away.id, 500);
  catalog().trash(other.id, 500);
  EXPECT_TRUE(projects().trash(book.id, ProjectStore::Images::Keep, 1000));
  EXPECT_EQ(catalog().get(twice.id)->deleted, 1000);
  EXPECT_EQ(catalog().get(there.id)->deleted, 0);
  EXPECT_EQ(catalog().get(other.id)->deleted, 500) << "both were thrown away";
}

TEST_P(ProjectStoreTest, OldProjectsLeaveTheTrashWithTheirJobs) {
  const Project book = added("Book");
  const Asset asset = put(1, book.id);
  Job job;
  job.id = new_id();
  job.kind = "generate";
  job.project = book.id;
  job.created = now_ms();
  jobs_->insert(job, 10);
  projects().trash(book.id, ProjectStore::Images::Trash, 1000);
  EXPECT_EQ(projects().remove_trashed(1000), 0);
  EXPECT_EQ(projects().remove_trashed(1001), 0) << "it has an image and a waiting job";
  assets_->remove(asset.id);
  EXPECT_EQ(projects().remove_trashed(1001), 0);
  jobs_->cancel(job.id, now_ms());
  EXPECT_EQ(projects().remove_trashed(1001), 1);
  EXPECT_FALSE(projects().get(book.id));
  EXPECT_FALSE(jobs_->get(job.id));
}

TEST_P(ProjectStoreTest, BoardsGroupImages) {
  const Project book = added("Book");
  const Board heads{.id = new_id(), .project = book.id, .name = "Heads"},
      hands{.id = new_id(), .project = book.id, .name = "Hands"};
  projects().insert_board(heads);
  projects().insert_board(hands);
  const Asset asset = put(1, book.id);
  catalog().change(asset.id, {.board = heads.id});
  auto boards = projects().boards(book.id);
  ASSERT_EQ(boards.size(), 2u);
  EXPECT_EQ(boards[0].name, "Heads");
  EXPECT_EQ(boards[0].images, 1);
  EXPECT_EQ(catalog().count({.board = heads.id}), 1);
  boards[1].position = -1;
  boards[1].cover = asset.id;
  projects().save_board(boards[1]);
  EXPECT_EQ(projects().boards(book.id)[0].id, hands.id);
  EXPECT_TRUE(projects().remove_board(heads.id));
  EXPECT_FALSE(projects().remove_board(heads.id));
  EXPECT_EQ(catalog().get(asset.id)->board, "");
  assets_->remove(asset.id);
  EXPECT_EQ(projects().board(hands.id)->cover, "");
  EXPECT_TRUE(projects().boards("").empty());
}

}  // namespace
}  // namespace flux2
