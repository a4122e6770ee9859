#include "server/store/asset_catalog.h"

#include <chrono>

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/ids.h"
#include "server/store/project_store.h"
#include "server/store/test_database.h"

namespace flux2 {
namespace {

class AssetCatalogTest : public BothDatabasesTest {
 protected:
  AssetCatalog catalog() { return AssetCatalog(*database_); }

  Asset put(unsigned seed, Asset fields = {.kind = "image"}) {
    return assets_->put(encode_png(test_image(16, 16, 3, seed)), std::move(fields));
  }

  // A finished job with one image, as a worker makes it.
  Asset made(const Json& request, uint64_t seed, const std::string& project = {}) {
    Job job;
    job.id = new_id();
    job.kind = "generate";
    job.project = project;
    job.model_key = "pico";
    job.request = request;
    job.created = now_ms();
    jobs_->insert(job, 1000);
    const auto claimed = jobs_->claim("gpu", "w", "", now_ms());
    EXPECT_TRUE(claimed && claimed->id == job.id);
    const Asset asset = put(static_cast<unsigned>(seed), {.kind = "image", .job = job.id});
    EXPECT_TRUE(jobs_->add_image(job.id, "w", {.index = 0, .asset = asset.id, .seed = seed, .width = 16, .height = 16}));
    Job done = *claimed;
    done.state = "completed";
    done.finished = now_ms();
    EXPECT_TRUE(jobs_->finish(done));
    return asset;
  }

  std::vector<std::string> found(const CatalogFilter& filter) {
    std::vector<std::string> ids;
    for (const CatalogItem& item : catalog().search(filter)) ids.push_back(item.asset.id);
    EXPECT_EQ(static_cast<int64_t>(ids.size()), catalog().count(filter));
    return ids;
  }
  using Ids = std::vector<std::string>;
};
INSTANTIATE_BOTH_DATABASES(AssetCatalogTest);

TEST_P(AssetCatalogTest, AnImageKnowsWhatMadeIt) {
  const Asset canvas = put(90, {.kind = "reference"});
  const Asset asset = made({{"prompt", "A Red Fox"},
                            {"canvas", "asset:" + canvas.id},
                            {"loras", {{{"name", "ink"}, {"weight", 0.5}}, "film:0.3"}},
                            {"tags", {"set 1", "animals"}}},
                           7);
  const auto item = catalog().get(asset.id);
  ASSERT_TRUE(item);
  EXPECT_EQ(item->prompt, "A Red Fox");
  EXPECT_EQ(item->model, "pico");
  EXPECT_EQ(item->seed, 7);
  EXPECT_EQ(item->loras, (Ids{"ink", "film"}));
  EXPECT_EQ(item->tags, (Ids{"animals", "set 1"}));
  EXPECT_EQ(item->asset.parent, canvas.id);
  EXPECT_EQ(catalog().parents(asset.id), Ids{canvas.id});
  EXPECT_EQ(catalog().children(canvas.id), Ids{asset.id});
  EXPECT_FALSE(catalog().get(new_id()));
}

TEST_P(AssetCatalogTest, FindsByWordsModelSeedSizeAndDate) {
  const Asset fox = made({{"prompt", "A red FOX in the snow, 100% real"}, {"loras", {"ink"}}}, 1);
  const Asset owl = made({{"prompt", "an owl in the snow, 1000 real"}, {"tags", {"Night_Sky"}}}, 2);
  const Asset uml = made({{"prompt", "ÜBER den Wolken"}}, 3);
  EXPECT_EQ(found({.words = "snow"}), (Ids{owl.id, fox.id}));
  EXPECT_EQ(found({.words = "SNOW fox"}), Ids{fox.id});
  EXPECT_EQ(found({.words = "über"}), Ids{uml.id});
  EXPECT_EQ(found({.words = "100%"}), Ids{fox.id}) << "% stands for itself";
  EXPECT_EQ(found({.words = "night_sky"}), Ids{owl.id});
  EXPECT_EQ(found({.words = "nightxsky"}), Ids{});
  EXPECT_EQ(found({.seed = 2}), Ids{owl.id});
  EXPECT_EQ(found({.lora = "ink"}), Ids{fox.id});
  EXPECT_EQ(found({.lora = "in"}), Ids{});
  EXPECT_EQ(found({.tag = "Night_Sky"}), Ids{owl.id});
  EXPECT_EQ(found({.model = "pico"}).size(), 3u);
  EXPECT_EQ(found({.model = "dev"}), Ids{});
  EXPECT_EQ(found({.width = 16, .height = 16}).size(), 3u);
  EXPECT_EQ(found({.width = 17}), Ids{});
  EXPECT_EQ(found({.from = owl.created}).size(), owl.created == fox.created ? 3u : 2u);
  EXPECT_EQ(found({.to = fox.created}), Ids{});
  EXPECT_EQ(found({.words = "' OR 1=1 --"}), Ids{});
}

TEST_P(AssetCatalogTest, PagesNeitherRepeatNorSkip) {
  Ids all;
  for (unsigned i = 0; i < 7; ++i) all.push_back(put(i).id);
  for (const bool oldest : {true, false}) {
    Ids seen;
    for (std::string after;;) {
      const auto page = catalog().search({.oldest_first = oldest, .after = after, .limit = 3});
      if (page.empty()) break;
      for (const CatalogItem& item : page) seen.push_back(item.asset.id);
      after = seen.back();
      // New ones do not move the pages of others.
      if (seen.size() < 7) put(static_cast<unsigned>(100 + seen.size() + (oldest ? 50 : 0)), {.kind = "mask"});
    }
    std::erase_if(seen, [&](const std::string& id) { return catalog().get(id)->asset.kind == "mask"; });
    if (!oldest) std::reverse(seen.begin(), seen.end());
    EXPECT_EQ(seen, all);
  }
}

TEST_P(AssetCatalogTest, ChangesWhatPeopleGive) {
  const Asset asset = put(1);
  auto item = catalog().change(asset.id, {.name = "Cover", .starred = true, .tags = Ids{"b", " a ", "b"}});
  ASSERT_TRUE(item);
  EXPECT_EQ(item->tags, (Ids{"a", "b"}));
  catalog().change(asset.id, {.add_tags = {"c"}, .remove_tags = {"a"}});
  item = catalog().get(asset.id);
  EXPECT_EQ(item->tags, (Ids{"b", "c"}));
  EXPECT_TRUE(item->starred);
  EXPECT_EQ(found({.words = "cover c"}), Ids{asset.id});
  EXPECT_EQ(found({.starred = true}), Ids{asset.id});
  EXPECT_EQ(found({.starred = false}), Ids{});
  ASSERT_EQ(catalog().tags({}).size(), 2u);
  EXPECT_EQ(catalog().tags({})[0].tag, "b");
  EXPECT_EQ(catalog().tags("other").size(), 0u);
  EXPECT_THROW(catalog().change(asset.id, {.add_tags = {""}}), Error);
  EXPECT_THROW(catalog().change(asset.id, {.add_tags = {std::string(101, 'x')}}), Error);
  EXPECT_FALSE(catalog().change(new_id(), {.starred = true}));
}

TEST_P(AssetCatalogTest, TheTrashKeepsAnImageUntilItIsEmptied) {
  const Asset a = put(1), b = put(2);
  catalog().change(a.id, {.tags = Ids{"x"}});
  EXPECT_TRUE(catalog().trash(a.id, 1000));
  EXPECT_FALSE(catalog().trash(a.id, 2000));
  EXPECT_EQ(found({}), Ids{b.id});
  EXPECT_EQ(found({.trash = true}), Ids{a.id});
  EXPECT_TRUE(catalog().tags({}).empty());
  EXPECT_EQ(catalog().in_trash(1000, 10), Ids{});
  EXPECT_EQ(catalog().in_trash(1001, 10), Ids{a.id});
  EXPECT_TRUE(catalog().restore(a.id));
  EXPECT_FALSE(catalog().restore(a.id));
  EXPECT_EQ(found({.tag = "x"}), Ids{a.id});

  catalog().trash(a.id, 1000);
  EXPECT_EQ(put(1).id, a.id) << "made again, it leaves the trash";
  EXPECT_EQ(catalog().get(a.id)->deleted, 0);
  EXPECT_TRUE(assets_->remove(a.id));
  EXPECT_EQ(found({.tag = "x"}), Ids{});
}

TEST_P(AssetCatalogTest, ImagesBelongToTheProjectOfTheirJob) {
  const Asset in_p = made({{"prompt", "x"}}, 1, "P"), in_default = made({{"prompt", "x"}}, 1);
  EXPECT_NE(in_p.id, in_default.id) << "equal bytes are stored once in each project";
  EXPECT_EQ(found({.project = "P"}), Ids{in_p.id});
  EXPECT_EQ(found({.project = ""}), Ids{in_default.id});
  try {
    catalog().change(in_p.id, {.project = ""});
    FAIL() << "two equal images in one project";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Refused);
  }
  const Asset other = made({{"prompt", "y"}}, 2, "P");
  EXPECT_EQ(catalog().change(other.id, {.project = ""})->asset.project, "");
}

TEST_P(AssetCatalogTest, OldImagesGetTheirPrompts) {
  const Asset asset = made({{"prompt", "a fox"}}, 5);
  database_->writing([&](SqlConnection& sql) { sql.run("UPDATE assets SET seed = -1, prompt = '', search = ''"); });
  EXPECT_EQ(found({.words = "fox"}), Ids{});
  EXPECT_EQ(catalog().describe_old(), 1);
  EXPECT_EQ(found({.words = "fox"}), Ids{asset.id});
  EXPECT_EQ(catalog().describe_old(), 0);
}

// The page asks for the first screen and for the number of all images; both must be quick, with any filter.
TEST_P(AssetCatalogTest, FiftyThousandImagesAreSearchedQuickly) {
  constexpr int kImages = 50'000;
  database_->writing([&](SqlConnection& sql) {
    for (int i = 0; i < kImages; ++i) {
      const std::string prompt =
          fmt::format("a photograph of animal number {} in a wide landscape with mountains, a lake and a cloudy evening sky{}", i,
                      i == 100 ? ", zebra" : "");
      sql.prepare(
             "INSERT INTO assets (id, project, kind, path, mime, sha256, job, parent, bytes, width, height, created, missing, "
             "prompt, "
             "search, seed) VALUES (?, ?, 'image', 'p', 'image/png', ?, '', '', 1, 1024, 1024, ?, 0, ?, ?, ?)")
          .bind(new_id())
          .bind(i % 10 == 0 ? "P" : "")
          .bind(std::to_string(i))
          .bind(1000 + i)
          .bind(prompt)
          .bind(prompt)
          .bind(i)
          .run();
    }
  });
  const auto milliseconds = [&](const CatalogFilter& filter, size_t expected) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(catalog().search(filter).size(), expected);
    catalog().count(filter);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
  const double all = milliseconds({.limit = 100}, 100), project = milliseconds({.project = "P", .limit = 100}, 100),
               rare = milliseconds({.words = "zebra", .limit = 100}, 1), none = milliseconds({.words = "giraffe lake"}, 0),
               seed = milliseconds({.seed = 7}, 1), starred = milliseconds({.starred = true}, 0);
  RecordProperty("milliseconds",
                 fmt::format("{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", all, project, rare, none, seed, starred));
  printf("all %.1f ms, project %.1f ms, rare word %.1f ms, no match %.1f ms, seed %.1f ms, starred %.1f ms\n", all, project, rare,
         none, seed, starred);
  for (const double time : {all, project, rare, none, seed, starred}) EXPECT_LT(time, 1000);
}

TEST_P(AssetCatalogTest, AnImageCanBeChangedWhateverTagsItsJobHad) {
  std::string umlauts;
  for (int i = 0; i < 70; ++i) umlauts += "ä";
  const Asset asset = made({{"prompt", "x"}, {"tags", {"two\nlines", "x" + umlauts, " b ", "b", ""}}}, 1);
  EXPECT_EQ(catalog().get(asset.id)->tags, (Ids{"b", "two lines", "x" + umlauts.substr(0, 98)})) << "no half characters";
  const auto item = catalog().change(asset.id, {.starred = true});
  ASSERT_TRUE(item);
  EXPECT_TRUE(item->starred);
  EXPECT_EQ(item->tags.size(), 3u);
}

}  // namespace
}  // namespace flux2
