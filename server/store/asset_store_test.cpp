#include "server/store/asset_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "image/codecs.h"
#include "image/read_image.h"
#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/ids.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

class AssetStoreTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> png(unsigned seed, int width = 20, int height = 10) {
    return encode_png(test_image(width, height, 3, seed));
  }

  static std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    return files;
  }

  template <class F>
  static ErrorCode code_of_failure(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::Internal;
  }

  fs::path folder_ = server_test_folder();
  AssetStore assets_{folder_};
};

TEST_F(AssetStoreTest, StoresBytesAndTheirDescription) {
  const auto bytes = png(1);
  const Asset put = assets_.put(bytes, {.project = "P", .kind = "image", .job = "J", .parent = "Q"});
  EXPECT_TRUE(is_id(put.id));
  EXPECT_EQ(put.path, "generated/" + put.id + ".png");
  EXPECT_EQ(put.mime, "image/png");
  EXPECT_EQ(put.bytes, bytes.size());
  EXPECT_EQ(put.width, 20);
  EXPECT_EQ(put.height, 10);

  const auto got = AssetStore(folder_).get(put.id);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->path, put.path);
  EXPECT_EQ(got->sha256, put.sha256);
  EXPECT_EQ(got->project, "P");
  EXPECT_EQ(got->job, "J");
  EXPECT_EQ(got->parent, "Q");
  EXPECT_EQ(got->created, put.created);
  EXPECT_FALSE(got->missing);
  EXPECT_EQ(read_image(assets_.path_of(*got)), test_image(20, 10, 3, 1));
  EXPECT_TRUE(files_in(folder_ / "workspace").empty());
  EXPECT_FALSE(assets_.get(new_id()));
}

TEST_F(AssetStoreTest, RecognisesEveryFormatByContent) {
  for (const ImageFormat format : available_formats()) {
    const Asset asset = assets_.put(encode_image(test_image(30, 40, 3), format), {.kind = "upload"});
    EXPECT_EQ(asset.path, fmt::format("uploads/{}.{}", asset.id, name_of(format)));
    EXPECT_EQ(asset.width, 30);
    EXPECT_EQ(asset.height, 40);
  }
}

TEST_F(AssetStoreTest, RefusesWhatIsNoImage) {
  const std::string svg = "<svg xmlns='http://www.w3.org/2000/svg'/>", bomb = "P6 60000 60000 255\n";
  EXPECT_EQ(code_of_failure([&] { assets_.put(bytes_of(svg), {.kind = "upload"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_failure([&] { assets_.put({}, {.kind = "upload"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_failure([&] { assets_.put(bytes_of(bomb), {.kind = "upload"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_failure([&] { assets_.put(png(1), {.kind = "../x"}); }), ErrorCode::InvalidArgument);
  EXPECT_TRUE(files_in(folder_ / "uploads").empty());
  EXPECT_TRUE(files_in(folder_ / "workspace").empty());
}

TEST_F(AssetStoreTest, EqualBytesAreStoredOncePerProjectAndKind) {
  const Asset first = assets_.put(png(1), {.kind = "upload"});
  EXPECT_EQ(assets_.put(png(1), {.kind = "upload"}).id, first.id);
  EXPECT_NE(assets_.put(png(1), {.project = "P", .kind = "upload"}).id, first.id);
  EXPECT_NE(assets_.put(png(1), {.kind = "mask"}).id, first.id);
  EXPECT_NE(assets_.put(png(2), {.kind = "upload"}).id, first.id);
  EXPECT_EQ(files_in(folder_ / "uploads").size(), 4u);

  fs::remove(assets_.path_of(first));
  EXPECT_EQ(code_of_failure([&] { assets_.path_of(first); }), ErrorCode::NotFound);
  assets_.sweep();
  EXPECT_TRUE(assets_.get(first.id)->missing);
  EXPECT_EQ(assets_.put(png(1), {.kind = "upload"}).id, first.id) << "the file comes back";
  EXPECT_FALSE(assets_.get(first.id)->missing);
  EXPECT_EQ(read_image(assets_.path_of(first)), test_image(20, 10, 3, 1));
}

TEST_F(AssetStoreTest, ManyThreadsStoreEqualBytesOnce) {
  AssetStore other(folder_);
  std::vector<std::string> ids(8);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < ids.size(); ++t)
      threads.emplace_back([&, t] { ids[t] = (t % 2 ? assets_ : other).put(png(7), {.kind = "upload"}).id; });
  }
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
  EXPECT_EQ(files_in(folder_ / "uploads").size(), 1u);
}

TEST_F(AssetStoreTest, TakesAFileOver) {
  const fs::path file = folder_ / "arrived";
  const auto bytes = png(3);
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const Asset asset = assets_.put_file(file, {.kind = "upload"});
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(fs::file_size(assets_.path_of(asset)), bytes.size());

  std::ofstream(file) << "text";
  EXPECT_EQ(code_of_failure([&] { assets_.put_file(file, {.kind = "upload"}); }), ErrorCode::InvalidArgument);
  EXPECT_TRUE(fs::exists(file)) << "a refused file stays with its owner";
  std::ofstream(file).close();
  EXPECT_EQ(code_of_failure([&] { assets_.put_file(file, {.kind = "upload"}); }), ErrorCode::InvalidArgument);
}

TEST_F(AssetStoreTest, ListsAndCounts) {
  std::vector<std::string> ids;
  for (unsigned i = 0; i < 5; ++i)
    ids.push_back(assets_.put(png(i), {.kind = i == 2 ? "mask" : "image", .job = i < 2 ? "J" : ""}).id);
  EXPECT_EQ(assets_.count({}), 5);
  EXPECT_EQ(assets_.count({.kind = "image"}), 4);
  EXPECT_EQ(assets_.count({.job = "J"}), 2);
  const auto page = assets_.list({.kind = "image", .before = ids[4], .limit = 2});
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].id, ids[3]);
  EXPECT_EQ(page[1].id, ids[1]);
}

TEST_F(AssetStoreTest, MakesThumbnailsAtTheFirstRequest) {
  const Asset wide = assets_.put(png(1, 900, 100), {.kind = "image"});
  const fs::path thumb = assets_.thumbnail(wide);
  EXPECT_EQ(thumb.extension(), webp_available() ? ".webp" : ".jpg");
  const Image small = read_image(thumb);
  EXPECT_EQ(small.width, 384);
  EXPECT_EQ(small.height, 43);
  const auto made = fs::last_write_time(thumb);
  EXPECT_EQ(assets_.thumbnail(wide), thumb);
  EXPECT_EQ(fs::last_write_time(thumb), made);
  fs::remove(thumb);
  EXPECT_TRUE(fs::exists(assets_.thumbnail(wide)));

  const Image tiny = read_image(assets_.thumbnail(assets_.put(png(2, 5, 7), {.kind = "image"})));
  EXPECT_EQ(tiny.width, 5);
  EXPECT_EQ(tiny.height, 7);
  EXPECT_EQ(code_of_failure([&] { assets_.thumbnail({.id = "../../x"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(read_image(assets_.thumbnail(assets_.put(png(3, 1, 900), {.kind = "image"}))).width, 1);
}

// A folder in which something happens when the store asks for the first time whether a file exists.
class InterruptedBlobs : public BlobStore {
 public:
  InterruptedBlobs(const fs::path& folder, std::function<void()> meanwhile)
      : blobs_(open_folder_blobs(folder)), meanwhile_(std::move(meanwhile)) {}

  void put(const std::string& name, std::span<const std::byte> bytes, const std::string& mime) override {
    blobs_->put(name, bytes, mime);
  }
  std::optional<fs::path> fetch(const std::string& name) override { return blobs_->fetch(name); }
  bool exists(const std::string& name) override {
    if (const auto meanwhile = std::exchange(meanwhile_, nullptr)) meanwhile();
    return blobs_->exists(name);
  }
  void remove(const std::string& name) override { blobs_->remove(name); }
  void list(const std::string& folder, const Page& page) override { blobs_->list(folder, page); }
  int tidy(std::chrono::seconds age) override { return blobs_->tidy(age); }
  std::string where() const override { return blobs_->where(); }

 private:
  std::unique_ptr<BlobStore> blobs_;
  std::function<void()> meanwhile_;
};

TEST_F(AssetStoreTest, EqualBytesThatAreRemovedMeanwhileAreStoredAgain) {
  const Asset first = assets_.put(png(1), {.kind = "image"});
  const auto remove_it = [&] { EXPECT_TRUE(assets_.remove(first.id)); };
  AssetStore other(folder_, std::make_unique<InterruptedBlobs>(folder_, remove_it), open_sqlite(folder_ / "flux2.db"));
  const Asset second = other.put(png(1), {.kind = "image"});
  EXPECT_NE(second.id, first.id);
  ASSERT_TRUE(assets_.get(second.id));
  EXPECT_TRUE(fs::exists(assets_.path_of(second)));
  EXPECT_EQ(files_in(folder_ / "generated").size(), 1u) << "and no bytes of the removed one are left";
}

TEST_F(AssetStoreTest, RemovesRowFileAndThumbnail) {
  const Asset asset = assets_.put(png(1), {.kind = "image"});
  const fs::path file = assets_.path_of(asset), thumb = assets_.thumbnail(asset);
  EXPECT_TRUE(assets_.remove(asset.id));
  EXPECT_FALSE(assets_.remove(asset.id));
  EXPECT_FALSE(assets_.get(asset.id));
  EXPECT_FALSE(fs::exists(file));
  EXPECT_FALSE(fs::exists(thumb));
}

TEST_F(AssetStoreTest, RemovesOldOnesOfAKind) {
  const Asset temporary = assets_.put(png(1), {.kind = "temporary"}), kept = assets_.put(png(1), {.kind = "image"});
  EXPECT_EQ(assets_.remove_older("temporary", temporary.created), 0);
  while (now_ms() == temporary.created) {}
  const Asset again = assets_.put(png(1), {.kind = "temporary"});
  EXPECT_EQ(again.id, temporary.id);
  EXPECT_EQ(assets_.remove_older("temporary", again.created), 0) << "its time has begun again";
  EXPECT_EQ(assets_.remove_older("temporary", again.created + 1), 1);
  EXPECT_FALSE(assets_.get(temporary.id));
  EXPECT_TRUE(assets_.get(kept.id));
}

TEST_F(AssetStoreTest, SweepRemovesFilesWithoutRows) {
  const Asset kept = assets_.put(png(1), {.kind = "image"}), lost = assets_.put(png(2), {.kind = "image"});
  assets_.thumbnail(kept);
  const auto leave = [&](const std::string& name) { std::ofstream(folder_ / name) << "x"; };
  leave("generated/" + new_id() + ".png");
  leave("uploads/" + new_id() + ".jpg");
  leave("thumbs/" + new_id() + ".webp");
  leave("workspace/" + new_id() + ".png");
  leave("generated/holiday.png");  // somebody's own
  fs::remove(assets_.path_of(lost));

  const auto young = assets_.sweep();
  EXPECT_EQ(young.files_removed, 0) << "they may just be on their way";
  EXPECT_EQ(young.rows_missing, 1);
  const auto swept = assets_.sweep(0);
  EXPECT_EQ(swept.files_removed, 4);
  EXPECT_EQ(swept.rows_missing, 1);
  EXPECT_TRUE(assets_.get(lost.id)->missing);
  EXPECT_FALSE(assets_.get(kept.id)->missing);
  EXPECT_EQ(files_in(folder_ / "generated").size(), 2u);
  EXPECT_EQ(files_in(folder_ / "thumbs").size(), 1u);
  EXPECT_EQ(assets_.sweep(0).files_removed, 0);
}

TEST_F(AssetStoreTest, NoPathLeavesTheDataFolder) {
  std::ofstream(folder_.parent_path() / "outside.png") << "x";
  EXPECT_EQ(code_of_failure([&] { assets_.path_of({.path = "../outside.png"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_failure([&] { assets_.path_of({.path = "generated/../../outside.png"}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of_failure([&] { assets_.path_of({.path = "/etc/passwd"}); }), ErrorCode::InvalidArgument);
  fs::remove(folder_.parent_path() / "outside.png");
}

}  // namespace
}  // namespace flux2
