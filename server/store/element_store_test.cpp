#include "server/store/element_store.h"

#include <gmock/gmock.h>

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_catalog.h"
#include "server/store/ids.h"
#include "server/store/project_store.h"
#include "server/store/test_database.h"

namespace flux2 {
namespace {

using testing::ElementsAre;

class ElementStoreTest : public BothDatabasesTest {
 protected:
  ElementStore elements() { return ElementStore(*database_); }

  std::string project(const std::string& name) {
    Project made;
    made.id = new_id();
    made.name = name;
    ProjectStore(*database_).insert(made);
    return made.id;
  }
  Element added(const std::string& project, const std::string& name, const std::string& trigger) {
    Element element;
    element.id = new_id();
    element.project = project;
    element.name = name;
    element.type = "character";
    element.trigger = trigger;
    element.created = element.updated = now_ms();
    elements().insert(element);
    return element;
  }
  std::string image(unsigned seed) {
    return assets_->put(encode_png(test_image(16, 16, 3, seed)), {.project = {}, .kind = "image"}).id;
  }
};
INSTANTIATE_BOTH_DATABASES(ElementStoreTest);

TEST_P(ElementStoreTest, KeepsEverything) {
  const std::string book = project("Book");
  Element hero = added(book, "Hero", "@Hero");
  hero.name = "The hero";
  hero.type = "style";
  hero.trigger = "@hero2";
  hero.description = "tall; \"quoted\"";
  hero.weight_note = "0.8 works";
  hero.loras = {{{"name", "hero"}, {"weight", 0.8}}};
  hero.max_refs = 3;
  hero.images = {image(2), image(1)};
  hero.updated = 5;
  elements().save(hero);
  const auto found = elements().get(hero.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "The hero");
  EXPECT_EQ(found->type, "style");
  EXPECT_EQ(found->trigger, "@hero2");
  EXPECT_EQ(found->description, hero.description);
  EXPECT_EQ(found->weight_note, hero.weight_note);
  EXPECT_EQ(found->loras, hero.loras);
  EXPECT_EQ(found->max_refs, 3);
  EXPECT_EQ(found->images, hero.images);
  EXPECT_EQ(found->updated, 5);
  EXPECT_EQ(found->created, hero.created);
  EXPECT_TRUE(elements().remove(hero.id));
  EXPECT_FALSE(elements().remove(hero.id));
  EXPECT_FALSE(elements().get(hero.id));
}

TEST_P(ElementStoreTest, TriggersAreUniqueWithinAProject) {
  const std::string book = project("Book");
  added(book, "Hero", "@Hero");
  added("", "Hero", "@hero");
  EXPECT_THROW(added(book, "Other", "@HERO"), Error);
  Element owl = added(book, "Owl", "@Owl");
  owl.trigger = "@hero";
  EXPECT_THROW(elements().save(owl), Error);
  EXPECT_EQ(elements().get(owl.id)->trigger, "@Owl");
  EXPECT_EQ(elements().count(book), 2);
  EXPECT_EQ(elements().list(book, false).size(), 2u);
  const auto all = elements().list(book, true);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].project, book);
  EXPECT_EQ(all[2].project, "");
  EXPECT_EQ(elements().with_triggers({"@hero", "@owl"}).size(), 3u);
  ProjectStore(*database_).trash(book, ProjectStore::Images::Trash, 1000);
  EXPECT_EQ(elements().with_triggers({"@hero", "@owl"}).size(), 1u) << "those of a deleted project are not found";
  EXPECT_EQ(ProjectStore(*database_).remove_trashed(2000), 1);
  EXPECT_FALSE(elements().get(owl.id));
}

TEST_P(ElementStoreTest, ImagesKeepTheirOrderAndLeaveWithTheirAsset) {
  const Element hero = added("", "Hero", "@Hero");
  const std::string a = image(1), b = image(2);
  EXPECT_TRUE(elements().add_image(hero.id, b, 7));
  EXPECT_TRUE(elements().add_image(hero.id, a, 8));
  EXPECT_TRUE(elements().add_image(hero.id, b, 9));
  EXPECT_FALSE(elements().add_image(new_id(), b, 9));
  EXPECT_THAT(elements().get(hero.id)->images, ElementsAre(b, a));
  EXPECT_EQ(elements().get(hero.id)->updated, 9);
  EXPECT_THAT(elements().names_using(a), ElementsAre("Hero"));
  EXPECT_TRUE(elements().remove_image(hero.id, b, 10));
  EXPECT_FALSE(elements().remove_image(hero.id, b, 10));
  assets_->remove(a);
  EXPECT_TRUE(elements().get(hero.id)->images.empty());
  EXPECT_TRUE(elements().names_using(a).empty());
}

TEST_P(ElementStoreTest, AnImageMadeForAnElementBecomesItsOwn) {
  const Element hero = added("", "Hero", "@Hero");
  Job job;
  job.id = new_id();
  job.kind = "element_visual";
  job.request = {{"kind", "generate"}, {"prompt", "x"}, {"resolution", {{"element", hero.id}}}};
  job.created = now_ms();
  jobs_->insert(job, 10);
  ASSERT_TRUE(jobs_->claim("gpu", "w", "", now_ms()));
  const std::string made = image(3);
  ASSERT_TRUE(jobs_->add_image(job.id, "w", {.index = 0, .asset = made, .seed = 1, .width = 16, .height = 16}));
  EXPECT_THAT(elements().get(hero.id)->images, ElementsAre(made));
}

TEST_P(ElementStoreTest, GetsNoMoreImagesThanItCanHave) {
  Element hero = added(project("Book"), "Hero", "@Hero");
  for (size_t i = 0; i + 1 < kMostElementImages; ++i) hero.images.push_back(new_id());
  elements().save(hero);
  const std::string last = new_id();
  EXPECT_TRUE(elements().add_image(hero.id, last, 1));
  EXPECT_TRUE(elements().add_image(hero.id, new_id(), 2));
  const auto found = elements().get(hero.id);
  ASSERT_EQ(found->images.size(), kMostElementImages);
  EXPECT_EQ(found->images.back(), last);
}

}  // namespace
}  // namespace flux2
