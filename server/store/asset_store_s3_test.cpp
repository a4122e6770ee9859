// Assets whose files are objects of an S3-compatible store.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "image/test_images.h"
#include "image/write_image.h"
#include "server/blobs/s3_blobs.h"
#include "server/store/asset_store.h"
#include "server/store/ids.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"
#include "tests/support/fake_s3.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class AssetsInS3 : public ::testing::Test {
 protected:
  std::unique_ptr<BlobStore> blobs() { return open_s3_blobs({.place = fake_.place(), .cache = folder_ / "cache", .page = 7}); }
  Asset put(unsigned seed, const char* kind = "image") {
    Asset fields;
    fields.kind = kind;
    return assets_.put(encode_png(test_image(500, 40, 3, seed)), fields);
  }

  fs::path folder_ = server_test_folder();
  test::FakeS3 fake_;
  AssetStore assets_{folder_, blobs(), open_sqlite(folder_ / "flux2.db")};
};

TEST_F(AssetsInS3, ServesFilesAndThumbnails) {
  const Asset asset = put(1);
  EXPECT_TRUE(fake_.objects().contains("some/place/generated/" + asset.id + ".png"));
  EXPECT_EQ(fs::file_size(assets_.path_of(asset)), asset.bytes);
  const fs::path thumb = assets_.thumbnail(asset);
  EXPECT_GT(fs::file_size(thumb), 0u);
  EXPECT_EQ(assets_.thumbnail(asset), thumb);
  EXPECT_EQ(fake_.objects().size(), 2u);
  EXPECT_EQ(put(1).id, asset.id) << "equal bytes are stored once";
  EXPECT_FALSE(fs::exists(folder_ / "generated"));
  EXPECT_TRUE(assets_.remove(asset.id));
  EXPECT_TRUE(fake_.objects().empty());
}

TEST_F(AssetsInS3, SweepRemovesOldObjectsWithoutRowsAndMarksMissingOnes) {
  std::vector<Asset> kept;
  for (unsigned i = 0; i < 20; ++i) kept.push_back(put(i, i % 2 ? "image" : "upload"));
  assets_.thumbnail(kept[0]);
  for (int i = 0; i < 30; ++i) {  // what kills have left long ago
    const char* folder = i % 3 == 0 ? "generated" : i % 3 == 1 ? "uploads" : "thumbs";
    fake_.add(fmt::format("some/place/{}/{}.png", folder, new_id()), {.bytes = "x", .type = "image/png"});
  }
  const std::string young = "some/place/generated/" + new_id() + ".png";
  fake_.add(young, {.bytes = "x", .type = "image/png", .modified = rfc3339(now_ms())});
  fake_.add("some/place/generated/holiday.png", {.bytes = "x", .type = "image/png"});  // somebody's own
  fake_.add("elsewhere/generated/" + new_id() + ".png", {.bytes = "x", .type = "image/png"});
  fake_.remove("some/place/uploads/" + kept[0].id + ".png");

  const AssetStore::Swept swept = assets_.sweep();
  EXPECT_EQ(swept.files_removed, 30);
  EXPECT_EQ(swept.rows_missing, 1);
  EXPECT_TRUE(assets_.get(kept[0].id)->missing);
  EXPECT_FALSE(assets_.get(kept[1].id)->missing);
  EXPECT_EQ(fake_.objects().size(), 19u + 1 + 3) << "images, a thumbnail, and what is not ours to remove";
  EXPECT_TRUE(fake_.objects().contains(young));
  EXPECT_EQ(assets_.sweep().files_removed, 0);
}

}  // namespace
}  // namespace flux2
