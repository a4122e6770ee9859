#include "server/store/project_archive.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_catalog.h"
#include "server/store/element_store.h"
#include "server/store/ids.h"
#include "server/store/shot_store.h"
#include "server/store/test_database.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An archive in memory, so that tests can spoil it.
struct MadeArchive : ZipReader {
  bool contains(const std::string& name) const override { return entries.contains(name); }
  uint64_t size_of(const std::string& name) const override { return contains(name) ? entries.at(name).size() : 0; }
  std::vector<std::byte> read(const std::string& name) const override {
    if (!contains(name)) fail(ErrorCode::InvalidArgument, "the archive has no entry {}", name);
    return entries.at(name);
  }
  Json manifest() const {
    const auto& bytes = entries.at("project.json");
    return Json::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void set_manifest(const Json& json) {
    const std::string text = json.dump();
    const auto bytes = std::as_bytes(std::span(text));
    entries["project.json"] = {bytes.begin(), bytes.end()};
  }

  std::map<std::string, std::vector<std::byte>> entries;
};

class ProjectArchiveTest : public BothDatabasesTest {
 protected:
  void SetUp() override {
    BothDatabasesTest::SetUp();
    if (IsSkipped()) return;
    Project project;
    project.id = book_ = new_id();
    project.name = "Book";
    project.settings = {{"width", 512}, {"style_prompt", "ink"}};
    ProjectStore(*database_).insert(project);
    board_ = new_id();
    ProjectStore(*database_).insert_board({.id = board_, .project = book_, .name = "Best", .cover = {}, .position = 0});
    first_ = image(1, book_).id;
    second_ =
        assets_->put(encode_png(test_image(16, 16, 3, 2)), {.project = book_, .kind = "upload", .job = {}, .parent = first_}).id;
    shared_ = image(3, "").id;
    catalog().change(first_, {.name = "Cover", .board = board_, .starred = true, .tags = std::vector<std::string>{"a", "b"}});
    Element hero;
    hero.id = new_id();
    hero.project = book_;
    hero.name = "Hero";
    hero.type = "character";
    hero.trigger = "@Hero";
    hero.images = {shared_, first_};
    ElementStore(*database_).insert(hero);
    const StoryScene scene{.id = new_id(), .project = book_, .name = "One", .text = "t", .position = 0};
    ShotStore(*database_).insert_scene(scene);
    Shot shot;
    shot.id = new_id();
    shot.project = book_;
    shot.scene = scene.id;
    shot.fields = {{"action", "runs"}};
    shot.thumbnail = first_;
    ShotStore(*database_).insert(shot);
  }

  Asset image(unsigned seed, const std::string& project) {
    return assets_->put(encode_png(test_image(16, 16, 3, seed)), {.project = project, .kind = "image"});
  }
  AssetCatalog catalog() { return AssetCatalog(*database_); }
  MadeArchive exported() {
    MadeArchive archive;
    for (const ZipStream::Entry& entry : archive_of(book_, *assets_)) {
      const std::string text = entry.file ? std::string() : entry.content;
      if (entry.file) {
        const auto mapped = MappedFile::open(entry.file());
        EXPECT_EQ(mapped->bytes().size(), entry.size);
        archive.entries[entry.name] = {mapped->bytes().begin(), mapped->bytes().end()};
      } else {
        const auto bytes = std::as_bytes(std::span(text));
        archive.entries[entry.name] = {bytes.begin(), bytes.end()};
      }
    }
    return archive;
  }
  Project import(const ZipReader& archive) { return import_archive(archive, *assets_, {}); }

  struct Counted {
    size_t projects, files;
    int64_t assets;
    bool operator==(const Counted&) const = default;
  };
  Counted counted() {
    size_t files = 0;
    for (const char* folder : {"generated", "uploads"})
      if (std::filesystem::exists(folder_ / folder))
        files += static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_ / folder), {}));
    return {ProjectStore(*database_).list().size(), files, catalog().count({})};
  }
  std::string refusal(const ZipReader& archive) {
    const Counted before = counted();
    try {
      import(archive);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::InvalidArgument);
      EXPECT_EQ(counted(), before) << "nothing is left behind";
      return e.what();
    }
    return {};
  }

  std::string book_, board_, first_, second_, shared_;
};
INSTANTIATE_BOTH_DATABASES(ProjectArchiveTest);

TEST_P(ProjectArchiveTest, AnImportedProjectIsEqual) {
  const Project copy = import(exported());
  EXPECT_NE(copy.id, book_);
  EXPECT_EQ(copy.name, "Book");
  EXPECT_EQ(copy.settings, ProjectStore(*database_).get(book_)->settings);
  const auto items = catalog().search({.project = copy.id, .oldest_first = true});
  ASSERT_EQ(items.size(), 3u) << "with the image of another project that an element uses";
  EXPECT_EQ(items[0].name, "Cover");
  EXPECT_TRUE(items[0].starred);
  EXPECT_THAT(items[0].tags, ElementsAre("a", "b"));
  EXPECT_EQ(items[0].asset.created, catalog().get(first_)->asset.created);
  EXPECT_EQ(items[0].asset.sha256, catalog().get(first_)->asset.sha256);
  EXPECT_TRUE(std::filesystem::exists(assets_->path_of(items[0].asset)));
  EXPECT_EQ(items[1].asset.parent, items[0].asset.id);
  EXPECT_EQ(items[1].asset.kind, "upload");
  const auto boards = ProjectStore(*database_).boards(copy.id);
  ASSERT_EQ(boards.size(), 1u);
  EXPECT_EQ(items[0].board, boards[0].id);
  const auto elements = ElementStore(*database_).list(copy.id, false);
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_THAT(elements[0].images, ElementsAre(items[2].asset.id, items[0].asset.id));
  const auto shots = ShotStore(*database_).list(copy.id);
  ASSERT_EQ(shots.size(), 1u);
  EXPECT_EQ(shots[0].fields["action"], "runs");
  EXPECT_EQ(shots[0].thumbnail, items[0].asset.id);
  EXPECT_EQ(shots[0].scene, ShotStore(*database_).scenes(copy.id).at(0).id);
  EXPECT_EQ(catalog().search({.project = copy.id, .words = "cover"}).size(), 1u) << "search finds it";
}

TEST_P(ProjectArchiveTest, AnArchiveGoesThroughARealFile) {
  ZipStream stream(archive_of(book_, *assets_));
  const auto path = folder_ / "book.zip";
  {
    std::ofstream file(path, std::ios::binary);
    for (std::string piece = stream.next(); !piece.empty(); piece = stream.next()) file << piece;
  }
  EXPECT_EQ(std::filesystem::file_size(path), stream.size());
  EXPECT_EQ(import(*open_zip(path)).images, 2);
}

TEST_P(ProjectArchiveTest, ADamagedArchiveLeavesNothingBehind) {
  const MadeArchive good = exported();
  MadeArchive bad = good;
  bad.entries.erase("project.json");
  EXPECT_THAT(refusal(bad), HasSubstr("project.json is missing"));
  bad = good;
  bad.entries.erase(std::prev(bad.entries.end(), 2)->first);
  EXPECT_THAT(refusal(bad), HasSubstr("no entry"));
  bad = good;
  for (auto& [name, bytes] : bad.entries)
    if (name != "project.json") bytes.back() ^= std::byte{1};
  EXPECT_NE(refusal(bad), "");
  const auto spoiled = [&](const std::function<void(Json&)>& spoil) {
    MadeArchive archive = good;
    Json manifest = good.manifest();
    spoil(manifest);
    archive.set_manifest(manifest);
    return refusal(archive);
  };
  EXPECT_THAT(spoiled([](Json& m) { m["version"] = 2; }), HasSubstr("version 2"));
  EXPECT_NE(spoiled([](Json& m) { m["format"] = "other"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m = Json::array(); }), "");
  EXPECT_NE(spoiled([](Json& m) { m.erase("project"); }), "");
  EXPECT_NE(spoiled([](Json& m) { m["assets"][1]["id"] = m["assets"][0]["id"]; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["assets"][1]["kind"] = "program"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["assets"][1]["seed"] = "x"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["assets"][1]["file"] = "project.json"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["elements"][0]["trigger"] = "x y"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["elements"].push_back(m["elements"][0]); }), "");
  EXPECT_NE(spoiled([](Json& m) { m["boards"] = 5; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["project"]["settings"]["style_prompt"] = 5; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["project"]["settings"]["output"] = "/etc"; }), "");
  EXPECT_NE(spoiled([](Json& m) { m["shots"][0]["fields"]["num_frames"] = "many"; }), "");
  EXPECT_EQ(spoiled([](Json& m) { m["boards"][0]["cover"] = "unknown"; }), "") << "what is not there is left out";
}

// Older versions of this program exported such rows.
TEST_P(ProjectArchiveTest, TagsAndElementImagesThatAreTooManyAreLeftOut) {
  MadeArchive archive = exported();
  Json manifest = archive.manifest();
  Json tags = {"a", "a", "two\nlines", std::string(300, 'x')};
  for (int i = 0; i < 100; ++i) tags.push_back("t" + std::to_string(i));
  manifest["assets"][0]["tags"] = tags;
  Json& images = manifest["elements"][0]["images"];
  for (size_t i = 0; i < 2 * kMostElementImages; ++i) images.push_back(images[0]);
  archive.set_manifest(manifest);
  const Project copy = import(archive);
  const CatalogItem cover = catalog().search({.project = copy.id, .oldest_first = true}).at(0);
  EXPECT_EQ(cover.tags.size(), kMostTags);
  EXPECT_TRUE(catalog().change(cover.asset.id, {.starred = false})) << "the tags are valid";
  EXPECT_EQ(ElementStore(*database_).list(copy.id, false).at(0).images.size(), 2u);
}

}  // namespace
}  // namespace flux2
